/**
 * Starts a Daytona sandbox, from whichever state it's in.
 */
import type { Sandbox as SdkSandbox } from "@daytona/sdk"
import * as Effect from "effect/Effect"
import * as Sandbox from "../Sandbox.ts"
import * as Errors from "./daytonaErrors.ts"

// Restoring an archived sandbox takes longest.
const deadline = "5 minutes"

// A start that fails as often as this isn't the moment's fault: that's 6 s.
const maxStarts = 6

// Whose state was told last.
const told = new WeakMap<SdkSandbox, unknown>()

/** Keeps the sandbox what it is: the SDK takes over whatever is answered, its id too, and asks for that one then. */
export const pin = (sdk: SdkSandbox): string => {
  const { id } = sdk
  told.set(sdk, id)
  Object.defineProperty(sdk, "id", {
    enumerable: true,
    get: () => id,
    set: (other) => {
      told.set(sdk, other)
    }
  })
  return id
}

/** Asks for the sandbox's state. One that was deleted is said to be gone, without the SDK's error. */
export const refresh = (operation: Sandbox.SandboxError["operation"], sdk: SdkSandbox) =>
  Effect.tryPromise({
    try: () => sdk.refreshData(),
    catch: (cause) => {
      const error = Errors.toError(operation)(cause)
      return error.reason._tag === "NotFound" ? gone(operation) : error
    }
  }).pipe(
    Effect.andThen(Effect.suspend(() => {
      if (sdk.state === undefined || told.get(sdk) !== sdk.id) return Effect.fail(Errors.odd(operation))
      return sdk.state === "destroyed" || sdk.state === "destroying"
        ? Effect.fail(gone(operation))
        : Effect.succeed(sdk.state)
    }))
  )

/** Fails where the sandbox isn't running. */
export const running = (operation: Sandbox.SandboxError["operation"], sdk: SdkSandbox) =>
  Effect.filterOrFail(
    refresh(operation, sdk),
    (state) => state === "started",
    (state) => Errors.error(operation, new Sandbox.NotRunning({ problem: `the sandbox is ${state}` }))
  )

const gone = (operation: Sandbox.SandboxError["operation"]) =>
  Errors.error(operation, new Sandbox.NotFound({ problem: "the sandbox is gone" }))

/**
 * Waits for what is under way, and starts what isn't. Memory survives a pause, and so do processes; anything else that
 * isn't `started` means that they're gone.
 */
export const wake: (
  operation: Sandbox.SandboxError["operation"],
  sdk: SdkSandbox
) => Effect.Effect<"already-running" | "restarted", Sandbox.SandboxError> = Effect.fnUntraced(
  function*(operation: Sandbox.SandboxError["operation"], sdk: SdkSandbox) {
    let restarted = false
    let starts = 0
    // What comes of its being asked while another change of state is under way is told as a bad request is.
    const attempt = (start: () => Promise<void>) =>
      Effect.tryPromise({ try: start, catch: Errors.toError(operation) }).pipe(
        Effect.catchIf(
          ({ reason }) => (reason._tag === "Transient" || reason._tag === "Unsupported") && ++starts < maxStarts,
          () => Effect.sleep(100 * 2 ** starts)
        )
      )
    while (true) {
      const state = yield* refresh(operation, sdk)
      switch (state) {
        case "started":
          return restarted ? "restarted" : "already-running"
        case "stopped":
        case "archived":
          restarted = true
          yield* attempt(() => sdk.start())
          break
        case "paused":
          yield* attempt(() => sdk.start())
          break
        case "error":
        case "build_failed":
          if (sdk.recoverable !== true || starts >= maxStarts) {
            return yield* Errors.error(
              operation,
              new Sandbox.Unsupported({
                problem: `it can't be started: ${state}, ${sdk.errorReason ?? "without a reason"}`
              })
            )
          }
          restarted = true
          starts++
          yield* attempt(() => sdk.recover())
          break
        case "pausing":
        case "resuming":
        case "resizing":
        case "snapshotting":
        case "forking":
        case "unknown":
          break
        default:
          restarted = true
      }
      if (sdk.state !== "started") yield* Effect.sleep("200 millis")
    }
  },
  (effect, operation) =>
    Effect.timeoutOrElse(effect, {
      duration: deadline,
      orElse: () =>
        Effect.fail(Errors.error(operation, new Sandbox.Transient({ problem: "it takes too long to start" })))
    })
)
