/**
 * One writer a session: who holds a session's directory, and how it's handed over.
 *
 * A lock is the file `lock-<n>` with the highest number in the session's directory, and names its holder. It's free
 * where its holder freed it or is gone. It's taken by creating the next number, which can succeed only once; numbers
 * never go back while the directory lives, so whoever was held up between looking and creating finds a higher one, and
 * has nothing.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { busyBy } from "./internal/busy.ts"
import { unavailable } from "./internal/unavailable.ts"
import { liveness, ProcessIdentity, ProcessTable } from "./ProcessTable.ts"
import * as StateDirectory from "./StateDirectory.ts"

/**
 * Whether a session's lock was got; if not, who has it, where that's known.
 *
 * @category models
 * @since 0.1.0
 */
export type Outcome =
  | { readonly _tag: "Acquired" }
  | { readonly _tag: "Held"; readonly holder: Holder | undefined }

/**
 * A lock that the system frees when its holder's process ends, whatever its pid namespace, beside the lock file.
 *
 * @category models
 * @since 0.1.0
 */
export interface KernelLock {
  /**
   * Locks the file at a path, which it creates, until the scope closes or the process ends; `false` where another
   * process has it. No child of this process inherits it.
   */
  readonly tryLock: (path: string) => Effect.Effect<boolean, Bridge.LogUnavailable, Scope.Scope>
}

/**
 * Who holds a session.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Holder = Schema.Struct({ launch: Schema.String, port: Schema.Int, ...ProcessIdentity.fields })

/** @category models @since 0.1.0 */
export type Holder = typeof Holder.Type

/**
 * What a bridge that needs a session writes into the session's directory.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Request = Schema.Struct({ launch: Schema.String, reason: Bridge.AbortReason })

/** @category models @since 0.1.0 */
export type Request = typeof Request.Type

/**
 * The kernel's lock that is held beside each lock file: none, unless the program provides one.
 *
 * @category services
 * @since 0.1.0
 */
export const SessionLocks: Context.Reference<KernelLock | undefined> = Context.Reference<KernelLock | undefined>(
  "@gangway/server/SessionLocks",
  { defaultValue: () => undefined }
)

/**
 * Takes a session's lock if it's free; the lock is freed with the scope. Asks nobody, and makes no directory: whoever
 * only looks must not bring back one that is being destroyed. A holder in another pid namespace counts as alive,
 * unless the kernel's lock says otherwise.
 *
 * @category combinators
 * @since 0.1.0
 */
export const tryAcquire = Effect.fnUntraced(function*(
  directory: string,
  holder: Holder
): Effect.fn.Return<Outcome, Bridge.LogUnavailable, FileSystem.FileSystem | Scope.Scope> {
  // What was taken on the way to a lock that another holds is given back at once.
  const scope = yield* Scope.fork(yield* Effect.scope)
  const outcome = yield* Scope.provide(tryAcquireIn(directory, holder), scope).pipe(
    Effect.onError(() => Scope.close(scope, Exit.void))
  )
  if (outcome._tag === "Held") yield* Scope.close(scope, Exit.void)
  return outcome
}, Effect.uninterruptible)

/**
 * Takes a session's lock, asking its holder for it, and making the session's directory where there's none. The holder
 * has 10 s; then it's killed if it's still the same process, and this waits until it's gone. Only a bridge that the
 * listening file names asks and kills.
 *
 * @category combinators
 * @since 0.1.0
 */
export const take = Effect.fnUntraced(function*(options: {
  readonly directory: string
  readonly session: Bridge.SessionId
  readonly holder: Holder
  /** Why the holder's turn ends. */
  readonly reason: Bridge.AbortReason
  /** What the listening file says now. */
  readonly listening: Effect.Effect<Bridge.ListeningFile | undefined>
}): Effect.fn.Return<
  void,
  Bridge.SessionBusy | Bridge.LogUnavailable,
  FileSystem.FileSystem | Scope.Scope
> {
  const fs = yield* FileSystem.FileSystem
  const table = yield* ProcessTable
  const { directory } = options
  const request = encodeRequest({ launch: options.holder.launch, reason: options.reason })
  const isListening = Effect.map(options.listening, (file) => file?.launch === options.holder.launch)

  let asked: Holder | undefined
  let looks = 0
  let killed = false
  // Its holder may remove the directory meanwhile, which then is made anew.
  const unlessRemoved = <A, R>(step: Effect.Effect<A, Bridge.LogUnavailable, R>) =>
    Effect.catch(step, (error) =>
      Effect.flatMap(
        Effect.orElseSucceed(fs.exists(directory), () => true),
        (isThere) => isThere || removals++ === maxRemovals ? Effect.fail(error) : Effect.undefined
      ))
  let removals = 0
  while (true) {
    const outcome = yield* unlessRemoved(Effect.andThen(
      StateDirectory.makeSessionDirectory(directory, { toDestroy: options.reason === "destroyed" }),
      tryAcquire(directory, options.holder)
    ))
    if (outcome === undefined) continue
    if (outcome._tag === "Acquired") {
      // It's answered, whoever asked; what comes from now on is for this holder.
      return yield* Effect.ignore(fs.remove(requestFile(directory), { recursive: true, force: true }))
    }
    const { holder } = outcome
    const busy = busyBy(options.session, holder)
    // Obeyed by nobody, and the newest has better reasons.
    if (!(yield* isListening) || holder?.launch === options.holder.launch) return yield* busy
    if (holder?.launch !== asked?.launch) {
      asked = holder
      looks = 0
      killed = false
    }
    if ((yield* readRequest(directory))?.launch !== options.holder.launch) {
      yield* unlessRemoved(StateDirectory.writeAtomic(requestFile(directory), request, { sync: false }))
    }
    // Looks are counted rather than time: while the machine is frozen, the holder is as well.
    if (looks++ === maxLooks) {
      if (killed || holder === undefined || (yield* liveness(holder)) !== "alive") return yield* busy
      killed = yield* table.signal(holder, "SIGKILL")
      if (!killed) return yield* busy
      looks = 0
    }
    yield* Effect.sleep(lookEvery)
  }
})

/**
 * Waits until a holder must hand its session over: a bridge asks for it that the listening file names, and that isn't
 * the holder itself. Looks each second.
 *
 * @category combinators
 * @since 0.1.0
 */
export const awaitRequest = Effect.fnUntraced(function*(options: {
  readonly directory: string
  /** The holder's own launch. */
  readonly launch: string
  /** What the listening file says now. */
  readonly listening: Effect.Effect<Bridge.ListeningFile | undefined>
}): Effect.fn.Return<Bridge.AbortReason, never, FileSystem.FileSystem> {
  while (true) {
    const request = yield* readRequest(options.directory)
    if (
      request !== undefined && request.launch !== options.launch &&
      (yield* options.listening)?.launch === request.launch
    ) return request.reason
    yield* Effect.sleep("1 second")
  }
})

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const lookEvery = "250 millis"
// 10 s; after a kill, for the process to be gone.
const maxLooks = 40
// More aren't a coincidence.
const maxRemovals = 100

// `kernel` says that the holder also has the kernel's lock: whoever has that knows that this holder is gone.
const Entry = Schema.Struct({ holder: Schema.optional(Holder), kernel: Schema.optional(Schema.Boolean) })

const EntryJson = Schema.fromJsonString(Entry)
const RequestJson = Schema.fromJsonString(Request)
const encodeEntry = (entry: typeof Entry.Type): string => `${Schema.encodeSync(EntryJson)(entry)}\n`
const encodeRequest = (request: Request): string => `${Schema.encodeSync(RequestJson)(request)}\n`

const freed = encodeEntry({})

const requestFile = (directory: string): string => `${directory}/request.json`

const numbers = Effect.fnUntraced(function*(directory: string) {
  const fs = yield* FileSystem.FileSystem
  const names = yield* Effect.mapError(fs.readDirectory(directory), unavailable)
  return names.flatMap((name) => /^lock-[1-9]\d*$/.test(name) ? [Number(name.slice("lock-".length))] : [])
})

/**
 * What a lock file says; `gone` where it was removed by now. A file appears with all it says: one that makes no sense
 * was cut short when the power failed, and nobody holds it.
 */
const readEntry = Effect.fnUntraced(function*(path: string) {
  const fs = yield* FileSystem.FileSystem
  const text = yield* fs.readFileString(path).pipe(
    Effect.asSome,
    Effect.catchIf((error) => error.reason._tag === "NotFound", () => Effect.succeedNone),
    Effect.mapError(unavailable)
  )
  if (Option.isNone(text)) return "gone"
  const entry = Schema.decodeOption(EntryJson)(text.value)
  return Option.isSome(entry) && entry.value.holder !== undefined
    ? { holder: entry.value.holder, kernel: entry.value.kernel === true }
    : undefined
})

const readRequest = (directory: string) =>
  FileSystem.FileSystem.pipe(
    Effect.flatMap((fs) => fs.readFileString(requestFile(directory))),
    Effect.flatMap(Schema.decodeEffect(RequestJson)),
    Effect.option,
    Effect.map(Option.getOrUndefined)
  )

const isHeld = (entry: { readonly holder: Holder; readonly kernel: boolean }, locked: boolean) =>
  locked && entry.kernel
    ? Effect.succeed(false)
    : Effect.map(liveness(entry.holder), (found) => found !== "gone")

const tryAcquireIn = Effect.fnUntraced(function*(
  directory: string,
  holder: Holder
): Effect.fn.Return<Outcome, Bridge.LogUnavailable, FileSystem.FileSystem | Scope.Scope> {
  const fs = yield* FileSystem.FileSystem
  const kernel = yield* SessionLocks
  const locked = kernel === undefined ? undefined : yield* kernel.tryLock(`${directory}/lock`)
  const entry = encodeEntry({ holder, kernel: locked === true })
  while (true) {
    const highest = Math.max(0, ...(yield* numbers(directory)))
    const current = highest === 0 ? undefined : yield* readEntry(`${directory}/lock-${highest}`)
    if (current === "gone") continue
    if (locked === false) return { _tag: "Held", holder: current?.holder }
    if (current !== undefined && (yield* isHeld(current, locked === true))) {
      return { _tag: "Held", holder: current.holder }
    }

    const mine = highest + 1
    const path = `${directory}/lock-${mine}`
    if (!(yield* StateDirectory.createExclusive(path, entry, { sync: false }))) continue
    const others = yield* numbers(directory)
    if (others.some((number) => number > mine)) {
      // This number was had and removed before: it came too late.
      yield* Effect.ignore(fs.remove(path))
      continue
    }
    yield* Effect.addFinalizer(() => Effect.ignore(free(path, entry)))
    for (const number of others) {
      if (number < mine) yield* Effect.ignore(fs.remove(`${directory}/lock-${number}`))
    }
    yield* StateDirectory.removeStale(directory)
    return { _tag: "Acquired" }
  }
})

/** The file stays, so that numbers don't go back; unless the directory was removed, and made anew by another. */
const free = Effect.fnUntraced(function*(path: string, entry: string) {
  const fs = yield* FileSystem.FileSystem
  if ((yield* fs.readFileString(path)) === entry) yield* StateDirectory.writeAtomic(path, freed, { sync: false })
})
