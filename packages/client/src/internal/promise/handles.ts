/**
 * Makes of a client, its sessions and its turns those of promises.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { BridgeClient } from "../../BridgeClient.ts"
import type * as Plain from "../../Promise.ts"
import type * as Session from "../../Session.ts"
import * as Status from "../../Status.ts"
import type * as Turn from "../../Turn.ts"
import { call, type Runner } from "./runner.ts"
import * as Tools from "./tools.ts"

export const toBridge = (runner: Runner<never>, client: BridgeClient["Service"]): Plain.Bridge => ({
  bridge: client.bridge,
  hello: (options) => runner.run(client.hello, options?.signal),
  startSession: ({ signal, ...options }) =>
    runner.run(Effect.flatMap(toSessionOptions(runner, options), client.startSession), signal)
      .then((session) => toSession(runner, session)),
  session: (session) => toSession(runner, client.session(Schema.decodeSync(Bridge.SessionId)(session))),
  close: runner.close,
  [Symbol.asyncDispose]: runner.close
})

const toSession = (runner: Runner<never>, session: Session.Session): Plain.Session => ({
  session: session.session,
  resumed: session.resumed,
  startTurn: ({ signal, ...options }) =>
    runner.run(
      Effect.flatMap(
        Schema.decodeEffect(Bridge.TurnId)(options.turn),
        (turn) => session.startTurn({ ...options, turn })
      ),
      signal
    ).then((turn) => toTurn(runner, turn)),
  turn: (turn, policy) => toTurn(runner, session.turn(Schema.decodeSync(Bridge.TurnId)(turn), policy)),
  compact: ({ signal, ...options } = {}) => runner.run(session.compact(options), signal),
  readState: (options) => runner.run(session.readState, options?.signal),
  stop: (options) => runner.run(session.stop, options?.signal),
  destroy: (options) => runner.run(session.destroy, options?.signal)
})

const toTurn = (runner: Runner<never>, turn: Turn.Turn): Plain.Turn => ({
  session: turn.session,
  turn: turn.turn,
  started: turn.started,
  parts: ({ signal, ...options } = {}) => runner.iterate(turn.parts(options), signal),
  end: (options) => runner.run(turn.end, options?.signal),
  endLine: (options) => runner.run(turn.endLine, options?.signal),
  text: (options) => runner.run(turn.text, options?.signal),
  abort: ({ signal, ...options } = {}) => runner.run(turn.abort(options), signal),
  send: (prompt, { messageId, signal, ...options } = {}) =>
    runner.run(
      messageId === undefined
        ? turn.send(prompt, options)
        : Effect.flatMap(
          Schema.decodeEffect(Bridge.MessageId)(messageId),
          (messageId) => turn.send(prompt, { ...options, messageId })
        ),
      signal
    ),
  approve: ({ signal, ...approval }) => runner.run(turn.approve(approval), signal),
  answer: ({ signal, ...answer }) => runner.run(turn.answer(answer), signal)
})

const toSessionOptions = (
  runner: Runner<never>,
  { env, onApproval, onQuestion, session, tools, ...options }: Omit<Plain.SessionOptions, "signal">
): Effect.Effect<Session.SessionOptions, Schema.SchemaError> =>
  Effect.map(Schema.decodeEffect(Bridge.SessionId)(session), (session) => ({
    ...options,
    session,
    tools: tools && Tools.toHostTools(tools),
    env: env && toSecrets(env),
    // What a handler throws is a defect, which the session tells the agent.
    onApproval: onApproval &&
      ((request, turn) =>
        Effect.flatMap(
          Effect.orDie(call((signal) => onApproval(request, { turn: toTurn(runner, turn), signal }))),
          orLeave
        )),
    onQuestion: onQuestion &&
      ((question, turn) =>
        Effect.flatMap(
          Effect.orDie(call((signal) => onQuestion(question, { turn: toTurn(runner, turn), signal }))),
          orLeave
        ))
  }))

// What others answer, or what is answered already, ends it.
const orLeave = <A>(answer: A) =>
  answer === undefined ? Effect.never : Effect.succeed(answer as Exclude<A, undefined | void>)

export const toSecrets = (values: Readonly<Record<string, string>>): Record<string, Redacted.Redacted<string>> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Redacted.make(value)]))

export const toOnStatus = (
  onStatus: Plain.ClientOptions["onStatus"]
): ((status: Status.Status) => Effect.Effect<void>) | undefined =>
  onStatus && ((status) =>
    call(() =>
      onStatus({
        ...status,
        ...("retryIn" in status && { retryIn: Duration.toMillis(status.retryIn) }),
        message: Status.toMessage(status)
      } as Plain.Status)
    ).pipe(Effect.catch((problem) => Effect.logWarning(`onStatus failed: ${problem}`))))
