/**
 * The scripted agent once it knows its conversation: it obeys its driver, one turn at a time.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberHandle from "effect/FiberHandle"
import type * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as Stdio from "effect/Stdio"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import type { ToAgent } from "../ScriptedAgent.ts"
import * as Conversation from "./scriptedConversation.ts"
import * as Output from "./scriptedOutput.ts"
import * as Play from "./scriptedPlay.ts"
import { echo, inPrompt, Script, type Step, stepsOf } from "./scriptedScript.ts"

type Open = Extract<ToAgent, { readonly type: "open" }>
type Message = Pick<Extract<ToAgent, { readonly type: "message" }>, "id" | "prompt">
type StartTurn = Extract<ToAgent, { readonly type: "turn" }>

/** An agent that was told its conversation. */
export interface Agent {
  readonly obey: (message: Exclude<ToAgent, Open>) => Effect.Effect<void, PlatformError>
}

/** Opens the agent's files; `exit` ends its program with a code. */
export const open = Effect.fnUntraced(function*(
  options: Open,
  stdio: Stdio.Stdio,
  exit: Deferred.Deferred<number>
): Effect.fn.Return<
  Agent,
  PlatformError | Conversation.ConversationUnreadable,
  FileSystem.FileSystem | Path.Path | ChildProcessSpawner | Scope.Scope
> {
  const scope = yield* Effect.scope
  const context = yield* Effect.context<FileSystem.FileSystem | Path.Path | ChildProcessSpawner>()
  const path = yield* Path.Path
  const file = Conversation.pathOf(path, options.home, options.conversation)
  const output = yield* Output.make({ ...options, file, stdio })
  const conversation = yield* Conversation.read(file)
  const playing = yield* FiberHandle.make<void, PlatformError>()
  let messages: Array<Message> = []
  const asked = new Map<string, Deferred.Deferred<Schema.Json>>()

  const remember = (entry: Conversation.Entry) =>
    Effect.uninterruptible(
      Effect.andThen(output.remember(entry), Effect.sync(() => Conversation.apply(conversation, entry)))
    )

  const crash = Effect.fnUntraced(function*(how: { exit?: number | undefined; stderr?: string | undefined }) {
    if (how.stderr !== undefined) yield* output.print("stderr", how.stderr)
    if (how.exit === undefined) yield* Effect.provideContext(Play.killAgent, context)
    else yield* Deferred.succeed(exit, how.exit)
    return yield* Effect.never
  })

  const scriptOf = (prompt: ReadonlyArray<Bridge.PromptPart>, otherwise?: Script) => {
    const text = prompt.map((part) => part.type === "text" ? part.text : "").join("\n")
    const json = inPrompt(text)
    return json === undefined
      ? Effect.succeed(otherwise ?? echo(text))
      : Effect.mapError(
        Schema.decodeEffect(Schema.fromJsonString(Script))(json),
        (error) => new Play.Failed({ kind: "invalid-request", message: `The prompt's script: ${error.message}` })
      )
  }

  // The script of a prompt, which is then what the conversation holds.
  const prompted = Effect.fnUntraced(function*(start: StartTurn, prompt: ReadonlyArray<Bridge.PromptPart>) {
    const script = yield* scriptOf(prompt, start.script)
    const dies = script.crashes?.find((crash) => crash.at === "prompt" && (crash.attempt ?? 1) === start.attempt)
    if (dies !== undefined) return yield* crash(dies)
    yield* remember({ type: "prompt", turn: start.turn, attempt: start.attempt, prompt, script })
    return script
  })

  const recordOf = (turn: string) => {
    const record = conversation.turns.get(turn)
    return record === undefined
      ? Effect.fail(new Play.Failed({ kind: "invalid-request", message: `The conversation holds no turn ${turn}.` }))
      : Effect.succeed(record)
  }

  // What a host sent into a turn comes before the step with that index; without one, after all.
  const addMessage = Effect.fnUntraced(function*(
    { attempt, turn }: StartTurn,
    { id, prompt }: Message,
    index?: number
  ) {
    const record = yield* recordOf(turn)
    const script = yield* scriptOf(prompt)
    const at = index ?? Conversation.stepsIn(record).length
    yield* remember({ type: "message", turn, attempt, id, at, prompt, script })
    return script
  })

  const takeMessages = (start: StartTurn) =>
    Effect.fnUntraced(function*(at: number) {
      const steps: Array<Step> = []
      for (let message = messages.shift(); message !== undefined; message = messages.shift()) {
        steps.push(...stepsOf(yield* addMessage(start, message, at + steps.length)))
        yield* output.journal({ type: "taken", turn: start.turn, attempt: start.attempt, id: message.id })
        yield* output.send({ type: "taken", id: message.id })
      }
      return steps
    })

  const nudged = Effect.fnUntraced(function*({ attempt, turn }: StartTurn) {
    const record = yield* recordOf(turn)
    yield* remember({ type: "nudge", turn, attempt })
    return record.script
  })

  const describe = ({ attempt, effort, model, turn }: StartTurn): string =>
    JSON.stringify({
      ...options.told,
      conversation: options.conversation,
      turn,
      attempt,
      model,
      effort,
      summary: conversation.summary,
      turns: [...conversation.turns.values()].map(({ answers, ended, nudges, prompt, steps, turn }) => ({
        turn,
        prompt: prompt.map((part) => part.type === "text" ? part.text.slice(0, 200) : `[${part.mediaType}]`),
        steps: steps.size,
        answers,
        nudges,
        ended
      }))
    })

  const ask = Effect.fnUntraced(function*(at: Output.At, request: Output.Request) {
    const heard = yield* Deferred.make<Schema.Json>()
    asked.set(request.id, heard)
    yield* output.journal({ type: "asked", ...at, kind: request.type, id: request.id })
    yield* output.send(request)
    const answer = yield* Effect.ensuring(Deferred.await(heard), Effect.sync(() => asked.delete(request.id)))
    yield* output.journal({ type: "answered", ...at, id: request.id, answer })
    yield* remember({ type: "answer", ...at, id: request.id, answer })
    return answer
  })

  const compact = Effect.fnUntraced(function*(instructions: string | undefined) {
    const turns = conversation.turns.size
    const summary = `${turns} turns${instructions === undefined ? "" : `, ${instructions}`}`
    yield* remember({ type: "compaction", summary })
    return summary
  })

  const play = Effect.fnUntraced(function*(start: StartTurn) {
    const { attempt, message, prompt, turn } = start
    messages = []
    yield* output.journal({ type: "turn", turn, attempt, nudged: prompt === undefined, message })
    const script = prompt === undefined
      ? yield* nudged(start)
      : message === undefined
      ? yield* prompted(start, prompt)
      : yield* Effect.andThen(
        addMessage(start, { id: message, prompt }),
        Effect.map(recordOf(turn), ({ script }) => script)
      )
    const record = yield* recordOf(turn)
    yield* Play.play({
      script,
      steps: Conversation.stepsIn(record),
      takeMessages: takeMessages(start),
      turn,
      attempt,
      done: record.steps,
      raw: start.raw,
      directory: options.told.directory,
      output,
      remember,
      finished: (at, parts) => Effect.sync(() => Conversation.apply(conversation, { type: "step", ...at, parts })),
      ask,
      crash,
      compacted: (summary) => remember({ type: "compaction", summary }),
      describe: Effect.sync(() => describe(start))
    })
    yield* remember({ type: "ended", turn, attempt, failed: false })
    yield* output.journal({ type: "ended", turn, attempt, how: "finished" })
    yield* output.send({
      type: "finished",
      finishReason: script.finishReason ?? "stop",
      cost: script.cost,
      output: start.responseFormat === undefined ? undefined : script.output ?? null
    })
  }, (effect, { attempt, turn }) =>
    Effect.catchTag(effect, "Failed", ({ kind, message }) =>
      Effect.gen(function*() {
        yield* remember({ type: "ended", turn, attempt, failed: true })
        yield* output.journal({ type: "ended", turn, attempt, how: "failed" })
        yield* output.send({ type: "failed", kind, message })
      })))

  const interrupt = Effect.gen(function*() {
    yield* FiberHandle.clear(playing)
    if (yield* output.interrupted) yield* output.send({ type: "interrupted" })
  })

  // What plays in the background takes the program down with it.
  const orExit = <E>(effect: Effect.Effect<void, E>) =>
    Effect.catchCause(effect, (cause) =>
      Cause.hasInterruptsOnly(cause) ? Effect.void : Effect.andThen(
        Effect.ignore(output.print("stderr", Cause.pretty(cause))),
        Deferred.succeed(exit, 1)
      ))

  yield* output.journal({ type: "started" })
  return {
    obey: (message) => {
      switch (message.type) {
        case "turn":
          return Effect.asVoid(FiberHandle.run(playing, orExit(Effect.provideContext(play(message), context))))
        case "answer":
          return Effect.suspend(() => {
            const heard = asked.get(message.id)
            return heard === undefined ? Effect.void : Effect.asVoid(Deferred.succeed(heard, message.answer))
          })
        case "message":
          return Effect.sync(() => {
            // Between turns nothing takes it.
            if (FiberHandle.getUnsafe(playing)._tag === "Some") messages.push(message)
          })
        // A stubborn turn holds nothing up but its own end.
        case "interrupt":
          return Effect.asVoid(Effect.forkIn(orExit(interrupt), scope))
        case "compact":
          return Effect.flatMap(
            compact(message.instructions),
            (summary) => output.send({ type: "compacted", summary })
          )
      }
    }
  }
})
