/**
 * What Codex asks while it works: whether it may run a command or change files, what the user says to a question, and
 * what a host tool answers.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { Finished, Turn, TurnFailed } from "@gangway/server/Driver"
import type * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import * as Items from "./codexItems.ts"
import * as Messages from "./codexMessages.ts"
import type { makeParts } from "./codexParts.ts"
import type { Codex } from "./codexProcess.ts"
import * as Prompt from "./codexPrompt.ts"
import { scriptOf } from "./codexShell.ts"

/** What Codex works on: a turn, or a compaction. */
export interface Work {
  /** Codex's id of the turn, once it's told. */
  id: string | undefined
  readonly emit: (part: Bridge.AgentPart) => Effect.Effect<void>
  /** Who is asked; a compaction asks nobody. */
  readonly turn: Turn | undefined
  readonly parts: ReturnType<typeof makeParts>
  /** What Codex asked and waits for, by the request's id. */
  readonly asking: FiberMap.FiberMap<Messages.RequestId>
  readonly done: Deferred.Deferred<Finished, TurnFailed>
  /** That the id is told. */
  readonly named: Deferred.Deferred<string>
  /** What hosts sent meanwhile and Codex was told, by the ids that it has for it. */
  readonly told: Map<string, Bridge.MessageId>
  /** Whether it was written that there is something to do. */
  sent: boolean
  interrupted: boolean
  /** What Codex said last. */
  answer: string | undefined
  /** The end of a turn that was told before the turn's id. */
  early: TurnEnd | undefined
}

/** What Codex tells of a turn that has ended. */
export type TurnEnd = Extract<Messages.Notification, { readonly method: "turn/completed" }>["params"]["turn"]

/** The most requests that wait for an answer at a time; more are refused. */
const maxAsking = 256

/** Who asked, and where. */
export interface Asked {
  readonly codex: Codex
  readonly work: Work | undefined
  readonly directory: string
}

/** Answers a request, or sees to it that it will be answered. */
export const answer = Effect.fnUntraced(function*(
  id: Messages.RequestId,
  request: Messages.ServerRequest,
  { codex, directory, work }: Asked
): Effect.fn.Return<void, never, FileSystem.FileSystem | Path.Path> {
  const turn = work?.turn
  if (work === undefined || turn === undefined) return yield* codex.refuse(id, "nobody is there to be asked")
  const deny = (reason: string | undefined, call: string, answer: Schema.Json) =>
    Effect.andThen(tellWhy(codex, work, request.params.threadId, call, reason), codex.answer(id, answer))
  const parent = Items.by(work.parts.parentOf(request.params.threadId))
  const approve = (asked: Omit<Parameters<Turn["requestApproval"]>[0], "approvalId" | "parent">) =>
    turn.requestApproval({ ...asked, approvalId: `${asked.toolCallId}:${id}`, ...parent })

  const respond = Effect.gen(function*() {
    switch (request.method) {
      case "item/commandExecution/requestApproval": {
        const { command, cwd, itemId, reason } = request.params
        const script = scriptOf(command ?? "")
        const { decision, reason: why } = yield* approve({
          toolCallId: itemId,
          name: Items.shell,
          params: { command: script, cwd: cwd ?? directory },
          edits: false,
          ...(Predicate.isString(reason) ? { reason } : {}),
          // What Codex would allow for good may be only the beginning of a longer command, so it's this one only.
          ...(script === "" ? {} : { rule: { key: JSON.stringify([Items.shell, cwd, script]), title: script } })
        })
        return yield* decision === "deny"
          ? deny(why, itemId, { decision: "decline" })
          : codex.answer(id, { decision: "accept" })
      }
      case "item/fileChange/requestApproval": {
        const { itemId, reason } = request.params
        const item = work.parts.openCall(itemId)
        const changes = item?.type === "fileChange" ? item.changes : []
        const inside = changes.length > 0 && (yield* areInside(directory, changes))
        const { decision, reason: why } = yield* approve({
          toolCallId: itemId,
          ...(item === undefined ? { name: Items.patch, params: {} } : Items.called(item)),
          edits: inside,
          ...(Predicate.isString(reason) ? { reason } : {}),
          ...(inside ? { rule: { key: "edits", title: "edits in the working directory" } } : {})
        })
        return yield* decision === "deny"
          ? deny(why, itemId, { decision: "decline" })
          : codex.answer(id, { decision: "accept" })
      }
      case "item/tool/call": {
        const { arguments: params, callId, tool: name } = request.params
        work.parts.called(callId)
        const { isFailure, result } = yield* turn.callHostTool({ id: callId, name, params, ...parent })
        // Before Codex tells it again.
        work.parts.answered(callId)
        const text = typeof result === "string" ? result : JSON.stringify(result)
        return yield* codex.answer(id, { contentItems: [{ type: "inputText", text }], success: !isFailure })
      }
      case "item/tool/requestUserInput":
        return yield* askUser(codex, turn, id, request.params, parent)
      case "mcpServer/elicitation/request": {
        const { _meta, serverName } = request.params
        const wanted = Option.getOrUndefined(decodeToolApproval(_meta))
        const item = wanted === undefined ? undefined : work.parts.openMcpCall(serverName, wanted.tool_name)
        // A server that asks the user for something of its own is told that there's no answer.
        if (wanted === undefined || item === undefined) return yield* codex.answer(id, declined)
        const { name } = Items.called(item)
        const { decision, reason: why } = yield* approve({
          toolCallId: item.id,
          name,
          params: wanted.tool_params ?? {},
          edits: false,
          reason: request.params.message,
          rule: { key: name, title: name }
        })
        return yield* decision === "deny"
          ? deny(why, item.id, declined)
          : codex.answer(id, { action: "accept", content: {}, _meta: null })
      }
    }
  })
  if ((yield* FiberMap.size(work.asking)) >= maxAsking) {
    return yield* codex.refuse(id, `${maxAsking} requests wait for an answer already`)
  }
  // One that's asked again while it waits is answered once.
  yield* FiberMap.run(work.asking, id, respond, { onlyIfMissing: true })
})

const declined = { action: "decline", content: null, _meta: null }

const decodeToolApproval = Schema.decodeUnknownOption(Messages.ToolApproval)

// A denial has no reason in Codex's protocol: the model reads it as a message, before it's asked to go on.
const tellWhy = Effect.fnUntraced(function*(
  codex: Codex,
  work: Work,
  threadId: string,
  call: string,
  reason: string | undefined
) {
  if (reason === undefined || work.id === undefined) return
  work.parts.denied(call, reason)
  // A sub-agent's turn has another id, which isn't known.
  if (work.parts.parentOf(threadId) !== undefined) return
  const told = codex.ask("turn/steer", {
    threadId,
    expectedTurnId: work.id,
    input: [Prompt.text(`The call was denied: ${reason}`)]
  })
  // The denial itself waits for it.
  yield* Effect.ignore(Effect.timeoutOption(told, "10 seconds"))
})

type Input = Extract<Messages.ServerRequest, { readonly method: "item/tool/requestUserInput" }>["params"]

const decodeAnswers = Schema.decodeUnknownOption(
  Schema.Record(Schema.String, Schema.Union([Schema.String, Schema.Array(Schema.String)]))
)

const askUser = Effect.fnUntraced(function*(
  codex: Codex,
  turn: Turn,
  id: Messages.RequestId,
  { itemId, questions }: Input,
  parent: { readonly parent?: string }
) {
  const { answer, isFailure } = yield* turn.ask({
    questionId: `${itemId}:${id}`,
    toolCallId: itemId,
    questions: questions.map(({ header, options, question }) => ({ question, header, options: options ?? [] })),
    ...parent
  })
  const given = isFailure ? undefined : Option.getOrUndefined(decodeAnswers(answer))
  // There's no way to say that nobody answered but to answer so.
  const words = typeof answer === "string" ? answer : JSON.stringify(answer)
  yield* codex.answer(id, {
    answers: Object.fromEntries(questions.map(({ id, question }) => {
      const chosen = given === undefined ? words : given[question] ?? []
      return [id, { answers: typeof chosen === "string" ? [chosen] : [...chosen] }]
    }))
  })
})

/** Whether all changed files are inside a directory, links followed. */
const areInside = Effect.fnUntraced(function*(
  directory: string,
  changes: ReadonlyArray<typeof Messages.FileUpdate.Type>
) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  // Of a file that doesn't exist yet, the nearest directory that does.
  const realPath = (file: string): Effect.Effect<string> =>
    Effect.catch(fs.realPath(file), () =>
      path.dirname(file) === file
        ? Effect.succeed(file)
        : Effect.map(realPath(path.dirname(file)), (parent) => path.join(parent, path.basename(file))))
  for (const { kind, path: from } of changes) {
    for (const file of Predicate.isString(kind.move_path) ? [from, kind.move_path] : [from]) {
      const relative = path.relative(directory, yield* realPath(path.resolve(directory, file)))
      if (relative === ".." || relative.startsWith(`..${path.sep}`) || path.isAbsolute(relative)) return false
    }
  }
  return true
})
