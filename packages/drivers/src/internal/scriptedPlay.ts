/**
 * Plays a script: what each action makes the scripted agent do.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import type * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import type { FromAgent } from "../ScriptedAgent.ts"
import type { Entry } from "./scriptedConversation.ts"
import type { At, Output, Request } from "./scriptedOutput.ts"
import { burst, pieces, type Position, randomText } from "./scriptedRandom.ts"
import type { Action, Crash, Script, Step } from "./scriptedScript.ts"

/** The script fails the turn, or is none. */
export class Failed extends Data.TaggedError("Failed")<{
  readonly kind: Extract<FromAgent, { readonly type: "failed" }>["kind"]
  readonly message: string
}> {}

/** What the agent program gives to the play. */
export interface Options {
  readonly script: Script
  readonly turn: string
  readonly attempt: number
  /** All steps of the turn, as far as they're known. */
  readonly steps: ReadonlyArray<Step>
  /** Takes the messages that wait: their steps come before the one that has this index. */
  readonly takeMessages: (at: number) => Effect.Effect<ReadonlyArray<Step>, PlatformError | Failed>
  /** The steps that an earlier attempt finished. */
  readonly done: ReadonlyMap<number, unknown>
  /** Whether the agent's own events are wanted. */
  readonly raw: boolean
  readonly directory: string
  readonly output: Output
  readonly remember: (entry: Entry) => Effect.Effect<void, PlatformError>
  /** Takes note that the conversation holds the step finished. */
  readonly finished: (at: At, parts: number) => Effect.Effect<void>
  readonly ask: (at: At, request: Request) => Effect.Effect<Schema.Json, PlatformError>
  readonly crash: (how: Crash) => Effect.Effect<never, PlatformError>
  readonly compacted: (summary: string) => Effect.Effect<void, PlatformError>
  readonly describe: Effect.Effect<string>
}

type Playing<A = void> = Effect.Effect<
  A,
  Failed | PlatformError,
  FileSystem.FileSystem | Path.Path | ChildProcessSpawner
>

const defaultChunk = 24
const defaultBurstSize = 64

/** Ends the agent with SIGKILL; doesn't return. */
export const killAgent: Effect.Effect<void, PlatformError, ChildProcessSpawner> = Effect.scoped(
  Effect.flatMap(
    ChildProcess.make("sh", ["-c", "kill -KILL $PPID"], { detached: false, stdin: "ignore" }),
    (handle) => handle.exitCode
  )
)

/** Plays the steps that are not done yet. */
export const play = Effect.fnUntraced(function*(options: Options): Effect.fn.Return<
  void,
  Failed | PlatformError,
  FileSystem.FileSystem | Path.Path | ChildProcessSpawner
> {
  const { attempt, output, script, turn } = options
  const steps = [...options.steps]
  for (let index = 0;; index++) {
    if (options.done.has(index)) continue
    steps.splice(index, 0, ...(yield* options.takeMessages(index)))
    const step = steps[index]
    if (step === undefined) return
    const at: At = { turn, attempt, step: index }
    const crashes = (script.crashes ?? []).filter((crash) =>
      (crash.attempt ?? 1) === attempt && (crash.step ?? 0) === index
    )
    const dieAt = (at: Crash["at"]) => {
      const crash = crashes.find((crash) => crash.at === at)
      return crash === undefined ? Effect.void : Effect.andThen(output.flush, options.crash(crash))
    }
    const emit = crashes.length === 0
      ? output.emit
      : (part: Bridge.AgentPart) => Effect.andThen(output.emit(part), Effect.suspend(() => dieAt(output.count())))

    yield* output.begin(at)
    yield* dieAt(0)
    const perform = makePerform(options, at, emit)
    for (let i = 0; i < step.actions.length; i++) yield* perform(step.actions[i], `${i}`, undefined)
    yield* output.finish(
      {
        type: "step-finished",
        usage: step.usage ?? { measured: false },
        ...(step.finishReason === undefined ? {} : { finishReason: step.finishReason }),
        metadata: { step: index }
      },
      Effect.andThen(Effect.suspend(() => options.finished(at, output.count())), dieAt("recorded"))
    )
    yield* dieAt(output.count())
  }
})

const makePerform = (
  options: Options,
  at: At,
  emitPart: (part: Bridge.AgentPart) => Effect.Effect<void, PlatformError>
) => {
  const { attempt, directory, output } = options
  const position = (action: string): Position => ({ seed: options.script.seed ?? 0, ...at, action })
  const idOf = (kind: string, action: string) => `${kind}-${attempt}-${at.step}-${action}`
  const pause = (millis: number) => Effect.andThen(output.flush, Effect.sleep(millis))

  const contentOf = (
    action: { text?: string | undefined; random?: Parameters<typeof randomText>[1] | undefined },
    index: string
  ) => action.text ?? (action.random === undefined ? "" : randomText(position(index), action.random))

  const block = Effect.fnUntraced(function*(
    kind: "text" | "reasoning",
    id: string,
    deltas: Iterable<string>,
    delay: number | undefined,
    parent: { readonly parent?: string }
  ) {
    yield* emitPart({ type: `${kind}-start`, id, ...parent })
    for (const delta of deltas) {
      if (delay !== undefined) yield* pause(delay)
      yield* emitPart({ type: `${kind}-delta`, id, delta, ...parent })
    }
    yield* emitPart({ type: `${kind}-end`, id, ...parent })
  })

  // Says something as a block of text.
  const say = (index: string, text: string) =>
    block("text", idOf("text", index), pieces(text, defaultChunk), undefined, {})

  const ask = (request: Request) => Effect.andThen(output.flush, options.ask(at, request))

  // Whether the call may be carried out, and what its result says otherwise.
  const approved = Effect.fnUntraced(function*(
    approval: { reason?: string | undefined; rule?: string | undefined } | undefined,
    call: { id: string; name: string; params: Schema.Json },
    edits: boolean,
    index: string
  ) {
    if (approval === undefined) return undefined
    const { id, name, params } = call
    const answer = yield* ask({
      type: "approval",
      id: idOf("approval", index),
      toolCallId: id,
      name,
      params,
      edits,
      reason: approval.reason,
      rule: approval.rule
    })
    const { decision, reason } = answer as { decision: Bridge.Decision; reason?: string }
    return decision === "deny" ? `denied${reason === undefined ? "" : `: ${reason}`}` : undefined
  })

  const run = Effect.fnUntraced(function*(command: readonly [string, ...Array<string>]) {
    const [program, ...args] = command
    const handle = yield* ChildProcess.make(program, args, { cwd: directory, extendEnv: true, stdin: "ignore" })
    const text = yield* Stream.mkString(Stream.decodeText(handle.all))
    const exitCode = yield* Effect.orElseSucceed(handle.exitCode, () => null)
    return { result: { output: text, exitCode }, isFailure: exitCode !== 0 }
  }, Effect.scoped)

  const tool = Effect.fnUntraced(function*(
    action: Extract<Action, { readonly type: "tool" }>,
    index: string,
    parent: { readonly parent?: string }
  ) {
    const { delay = 0, name, params = {}, preliminary = 0 } = action
    const id = idOf("call", index)
    if (action.paramsChunk !== undefined) {
      yield* emitPart({ type: "tool-params-start", id, name, providerExecuted: true, ...parent })
      for (const delta of pieces(JSON.stringify(params), action.paramsChunk)) {
        yield* emitPart({ type: "tool-params-delta", id, delta, ...parent })
      }
      yield* emitPart({ type: "tool-params-end", id, ...parent })
    }
    yield* emitPart({ type: "tool-call", id, name, params, providerExecuted: true, ...parent })
    const result = (result: Schema.Json, isFailure: boolean, preliminary: { readonly preliminary?: true }) =>
      emitPart({ type: "tool-result", id, name, result, isFailure, providerExecuted: true, ...preliminary, ...parent })
    const denied = yield* approved(action.approval, { id, name, params }, false, index)
    if (denied !== undefined) return yield* result(denied, true, {})
    for (let i = 0; i < preliminary; i++) {
      yield* pause(delay / (preliminary + 1))
      yield* result({ preliminary: i }, false, { preliminary: true })
    }
    yield* pause(delay / (preliminary + 1))
    if (action.command !== undefined) {
      const ran = yield* run(action.command)
      return yield* result(ran.result, ran.isFailure, {})
    }
    yield* result(action.result ?? contentOf(action, index), action.isFailure ?? false, {})
  })

  const hostTools = Effect.fnUntraced(function*(
    action: Extract<Action, { readonly type: "host-tools" }>,
    index: string
  ) {
    const calls = action.calls.map(({ name, params = {} }, i) => ({ id: idOf("host", `${index}.${i}`), name, params }))
    for (const call of calls) yield* emitPart({ type: "tool-call", ...call, providerExecuted: false })
    yield* output.flush
    const answers = yield* Effect.forEach(calls, (call) => options.ask(at, { type: "call", ...call }), {
      concurrency: "unbounded"
    })
    if (action.echo === true) yield* say(index, JSON.stringify(answers))
  })

  const file = Effect.fnUntraced(function*(action: Extract<Action, { readonly type: "file" }>, index: string) {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const target = path.resolve(directory, action.path)
    const content = action.remove === true ? "" : contentOf(action, index)
    const id = idOf("call", index)
    const name = action.remove === true ? "remove" : "write"
    const params = { path: target, ...(action.remove === true ? {} : { content }) }
    yield* emitPart({ type: "tool-call", id, name, params, providerExecuted: true })
    // Links may lead out.
    const parent = yield* Effect.orElseSucceed(fs.realPath(path.dirname(target)), () => path.dirname(target))
    const inside = !path.relative(directory, parent).startsWith("..")
    const denied = yield* approved(action.approval, { id, name, params }, inside, index)
    const result = (result: Schema.Json, isFailure: boolean) =>
      emitPart({ type: "tool-result", id, name, result, isFailure, providerExecuted: true })
    if (denied !== undefined) return yield* result(denied, true)
    const before = yield* Effect.orElseSucceed(fs.readFileString(target), () => undefined)
    if (action.remove === true) yield* fs.remove(target)
    else {
      yield* fs.makeDirectory(path.dirname(target), { recursive: true })
      yield* fs.writeFileString(target, content)
    }
    yield* emitPart({
      type: "file-change",
      path: target,
      kind: action.remove === true ? "delete" : before === undefined ? "create" : "update",
      diff: diff(action.path, before ?? "", content),
      toolCallId: id
    })
    yield* result("done", false)
  })

  const spawn = Effect.fnUntraced(function*(action: Extract<Action, { readonly type: "spawn" }>, index: string) {
    const id = idOf("call", index)
    const name = "spawn"
    yield* emitPart({ type: "tool-call", id, name, params: { command: action.command }, providerExecuted: true })
    yield* output.flush
    const command = `${action.ignoreTerm === true ? "trap '' TERM; " : ""}${action.command}`
    const options = { cwd: directory, extendEnv: true, detached: action.setsid === true, stdin: "ignore" } as const
    const result = yield* Effect.scoped(Effect.gen(function*() {
      if (action.background !== true) {
        const silent = { ...options, stdout: "ignore", stderr: "ignore" } as const
        const handle = yield* ChildProcess.make("sh", ["-c", command], silent)
        return { exitCode: yield* Effect.orElseSucceed(handle.exitCode, () => null) }
      }
      const background = `sh -c "$1" </dev/null >/dev/null 2>&1 & echo $!`
      const handle = yield* ChildProcess.make("sh", ["-c", background, "sh", command], options)
      // Closing the scope would end its group.
      yield* Effect.asVoid(handle.unref)
      return { pid: Number(yield* Stream.mkString(Stream.decodeText(handle.stdout))) }
    }))
    yield* emitPart({ type: "tool-result", id, name, result, isFailure: false, providerExecuted: true })
  })

  const perform = (action: Action, index: string, parent: string | undefined): Playing => {
    if (action.attempts !== undefined && !action.attempts.includes(attempt)) return Effect.void
    const carried = parent === undefined ? {} : { parent }
    switch (action.type) {
      case "text":
      case "reasoning":
        return block(
          action.type,
          idOf(action.type, index),
          pieces(contentOf(action, index), action.chunk ?? defaultChunk),
          action.delay,
          carried
        )
      case "burst":
        return block(
          "text",
          idOf("text", index),
          burst(position(index), action.parts, action.size ?? defaultBurstSize),
          undefined,
          carried
        )
      case "tool":
        return tool(action, index, carried)
      case "host-tools":
        return hostTools(action, index)
      case "question":
        return Effect.flatMap(
          ask({ type: "question", id: idOf("question", index), questions: action.questions }),
          (answer) => action.echo === true ? say(index, JSON.stringify(answer)) : Effect.void
        )
      case "file":
        return file(action, index)
      case "spawn":
        return spawn(action, index)
      case "wait":
        return pause(action.delay)
      case "hang":
        return Effect.andThen(
          output.flush,
          action.stubborn === true ? Effect.uninterruptible(Effect.never) : Effect.never
        )
      case "fail":
        return Effect.andThen(output.flush, Effect.fail(new Failed({ kind: action.kind, message: action.message })))
      case "raw":
        return options.raw ? emitPart({ type: "raw", event: action.event }) : Effect.void
      case "parts":
        return Effect.forEach(action.parts, (part) =>
          // By its metadata a notice of the agent's is told from the bridge's.
          emitPart(part.type === "notice" ? { ...part, metadata: { ...part.metadata, step: at.step } } : part), {
          discard: true
        })
      case "compaction": {
        const { summary, tokensAfter, tokensBefore } = action
        return Effect.andThen(
          options.compacted(summary ?? ""),
          emitPart({
            type: "compaction",
            trigger: "auto",
            ...(summary === undefined ? {} : { summary }),
            ...(tokensBefore === undefined ? {} : { tokensBefore }),
            ...(tokensAfter === undefined ? {} : { tokensAfter })
          })
        )
      }
      case "describe":
        return Effect.flatMap(options.describe, (told) => say(index, told))
      case "print":
        return Effect.andThen(output.flush, output.print(action.to, action.text))
      case "sub-agent":
        return Effect.gen(function*() {
          const id = idOf("call", index)
          yield* emitPart({ type: "tool-call", id, name: action.name, params: {}, providerExecuted: true })
          for (let i = 0; i < action.actions.length; i++) yield* perform(action.actions[i], `${index}.${i}`, id)
          yield* emitPart({
            type: "tool-result",
            id,
            name: action.name,
            result: null,
            isFailure: false,
            providerExecuted: true
          })
        })
    }
  }
  return perform
}

// A unified diff with the whole file as its one hunk.
const diff = (path: string, before: string, after: string): string => {
  const linesOf = (text: string) => text === "" ? [] : text.replace(/\n$/, "").split("\n")
  const [old, now] = [linesOf(before), linesOf(after)]
  const range = (lines: ReadonlyArray<string>) => `${lines.length === 0 ? 0 : 1},${lines.length}`
  return [
    `--- a/${path}`,
    `+++ b/${path}`,
    `@@ -${range(old)} +${range(now)} @@`,
    ...old.map((line) => `-${line}`),
    ...now.map((line) => `+${line}`),
    ""
  ].join("\n")
}
