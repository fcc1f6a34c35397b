import * as BunFileSystem from "@effect/platform-bun/BunFileSystem"
import { assert, describe, it } from "@effect/vitest"
import * as Bridge from "@gangway/protocol/Bridge"
import { portable, ProcessTable } from "@gangway/server/ProcessTable"
import * as SessionLock from "@gangway/server/SessionLock"
import { Effect, Exit, Fiber, FileSystem, Random, Scope } from "effect"
import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { eventually } from "./fixtures/processes.ts"

const session = Bridge.SessionId.make("s1")

const temporary = Effect.acquireRelease(
  Effect.sync(() => {
    const root = Fs.mkdtempSync(join(tmpdir(), "gangway-lock-"))
    Fs.mkdirSync(join(root, "s1"), { mode: 0o700 })
    return root
  }),
  (directory) => Effect.sync(() => Fs.rmSync(directory, { recursive: true, force: true }))
)

const live = (name: string, effect: Effect.Effect<void, unknown, Scope.Scope | FileSystem.FileSystem>) =>
  it.live(name, () => effect.pipe(Effect.provide(BunFileSystem.layer)), 60_000)

const holder = (launch: string, options: Partial<SessionLock.Holder> = {}) =>
  Effect.map(portable.self, (self): SessionLock.Holder => ({ launch, port: 4000, ...self, ...options }))

const locks = (directory: string) => Fs.readdirSync(directory).filter((name) => name.startsWith("lock")).sort()

const put = (directory: string, number: number, holder: SessionLock.Holder) => {
  Fs.mkdirSync(directory, { recursive: true })
  Fs.writeFileSync(join(directory, `lock-${number}`), JSON.stringify({ holder, kernel: false }))
}

const listening = (launch: string): Effect.Effect<Bridge.ListeningFile> =>
  Effect.succeed({ protocol: 1, bridge: Bridge.BridgeId.make("b1"), launch, port: 4000, pid: 1 })

const tryHeld = (directory: string, launch: string) =>
  Effect.flatMap(holder(launch), (me) => SessionLock.tryAcquire(directory, me))

describe("tryAcquire", () => {
  live(
    "one holds a session, others learn who, until it's freed",
    Effect.gen(function*() {
      const directory = join(yield* temporary, "s1")
      const scope = yield* Scope.make()
      const first = yield* holder("first")
      assert.deepStrictEqual(yield* Scope.provide(SessionLock.tryAcquire(directory, first), scope), {
        _tag: "Acquired"
      })
      assert.deepStrictEqual(yield* tryHeld(directory, "second"), { _tag: "Held", holder: first })
      assert.deepStrictEqual(locks(directory), ["lock-1"])
      assert.strictEqual(Fs.statSync(join(directory, "lock-1")).mode & 0o777, 0o600)
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(yield* tryHeld(directory, "second"), { _tag: "Acquired" })
      assert.deepStrictEqual(locks(directory), ["lock-2"])
    })
  )

  live(
    "a holder that is gone is superseded, one that may live is not",
    Effect.gen(function*() {
      const root = yield* temporary
      const self = yield* portable.self
      const cases: ReadonlyArray<readonly [name: string, Partial<SessionLock.Holder>, free: boolean]> = [
        ["another boot", { boot: "another" }, true],
        ["another boot and pid namespace", { boot: "another", pidNamespace: "another" }, true],
        ["the pid has another process now", { start: `${Number(self.start) - 1}` }, true],
        ["no such pid", { pid: 2 ** 30 }, true],
        ["another pid namespace, where the pid may mean another", { pid: 2 ** 30, pidNamespace: "another" }, false],
        ["alive", {}, false]
      ]
      for (const [name, options, free] of cases) {
        const directory = join(root, name)
        put(directory, 7, yield* holder("old", options))
        const outcome = yield* tryHeld(directory, "new")
        assert.strictEqual(outcome._tag, free ? "Acquired" : "Held", name)
        assert.deepStrictEqual(locks(directory), [free ? "lock-8" : "lock-7"])
      }
    })
  )

  live(
    "the highest number rules, and one that was cut short when the power failed is nobody's",
    Effect.gen(function*() {
      const directory = join(yield* temporary, "s1")
      put(directory, 9, yield* holder("older"))
      put(directory, 10, yield* holder("dead", { boot: "another" }))
      assert.strictEqual((yield* Effect.scoped(tryHeld(directory, "new")))._tag, "Acquired")
      assert.deepStrictEqual(locks(directory), ["lock-11"])
      Fs.writeFileSync(join(directory, "lock-12"), "")
      assert.strictEqual((yield* tryHeld(directory, "new"))._tag, "Acquired")
      assert.deepStrictEqual(locks(directory), ["lock-13"])
    })
  )

  live(
    "who was held up between looking and creating has nothing",
    Effect.gen(function*() {
      const directory = join(yield* temporary, "s1")
      const fs = yield* FileSystem.FileSystem
      const dead = yield* holder("dead", { boot: "another" })
      const winner = yield* holder("winner")
      put(directory, 5, dead)
      let looked = false
      const late = SessionLock.tryAcquire(directory, yield* holder("late")).pipe(
        Effect.provideService(FileSystem.FileSystem, {
          ...fs,
          link: (from, to) =>
            Effect.suspend(() => {
              if (!looked) {
                // While it stood still, one took the lock and died, and another has it.
                looked = true
                put(directory, 6, dead)
                put(directory, 7, winner)
                Fs.rmSync(join(directory, "lock-5"))
                Fs.rmSync(join(directory, "lock-6"))
              }
              return fs.link(from, to)
            })
        })
      )
      assert.deepStrictEqual(yield* late, { _tag: "Held", holder: winner })
      assert.isTrue(looked)
      assert.deepStrictEqual(locks(directory), ["lock-7"])
    })
  )

  live(
    "a holder whose directory was removed and made anew doesn't free another's lock",
    Effect.gen(function*() {
      const directory = join(yield* temporary, "s1")
      const scope = yield* Scope.make()
      yield* Scope.provide(tryHeld(directory, "first"), scope)
      Fs.rmSync(directory, { recursive: true })
      const second = yield* holder("second")
      put(directory, 1, second)
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(yield* tryHeld(directory, "third"), { _tag: "Held", holder: second })
    })
  )

  live(
    "an unreadable lock is an error, never a free one",
    Effect.gen(function*() {
      const directory = join(yield* temporary, "s1")
      Fs.mkdirSync(join(directory, "lock-3"), { recursive: true })
      assert.instanceOf(yield* Effect.flip(tryHeld(directory, "new")), Bridge.LogUnavailable)
      assert.deepStrictEqual(locks(directory), ["lock-3"])
    })
  )

  for (const seed of [1, 2, 3]) {
    live(
      `no two hold a session at once, whoever dies or is slow (seed ${seed})`,
      Effect.gen(function*() {
        const directory = join(yield* temporary, "s1")
        const fs = yield* FileSystem.FileSystem
        const self = yield* portable.self
        // Bridges that live and die on paper, so that thousands of them can.
        const alive = new Set<number>()
        const table: ProcessTable = {
          ...portable,
          identify: (pid) => Effect.succeed(alive.has(pid) ? { ...self, pid, start: "1" } : undefined)
        }
        const slow = <A, E>(effect: Effect.Effect<A, E>) =>
          // Now and then for as long as others take to have the lock, and lose it.
          Effect.flatMap(
            Random.nextIntBetween(0, 12),
            (millis) => Effect.andThen(millis < 9 ? Effect.yieldNow : Effect.sleep(millis), effect)
          )
        const slowFs: FileSystem.FileSystem = {
          ...fs,
          readDirectory: (path, options) => slow(fs.readDirectory(path, options)),
          readFileString: (path, encoding) => slow(fs.readFileString(path, encoding)),
          link: (from, to) => slow(fs.link(from, to)),
          rename: (from, to) => slow(fs.rename(from, to)),
          remove: (path, options) => slow(fs.remove(path, options))
        }
        let pids = 1000
        let acquired = 0
        let died = 0
        const holding = new Set<number>()

        const bridge = Effect.gen(function*() {
          const pid = pids++
          alive.add(pid)
          const scope = yield* Scope.make()
          for (let tries = 0; tries < 3; tries++) {
            const outcome = yield* Scope.provide(
              SessionLock.tryAcquire(directory, { launch: `${pid}`, port: 1, ...self, pid, start: "1" }),
              scope
            )
            if (outcome._tag === "Held") {
              assert.notStrictEqual(outcome.holder!.pid, pid)
              yield* Effect.sleep(1)
              continue
            }
            acquired++
            assert.deepStrictEqual(Array.from(holding).filter((other) => alive.has(other)), [])
            holding.add(pid)
            yield* slow(Effect.sleep(0))
            if (yield* Random.nextBoolean) {
              // Killed: nothing is freed.
              died++
              alive.delete(pid)
              return
            }
            holding.delete(pid)
            yield* Scope.close(scope, Exit.void)
            return
          }
          alive.delete(pid)
        })
        yield* Effect.forEach(Array.from({ length: 8 }), () => Effect.repeat(bridge, { times: 24 }), {
          concurrency: "unbounded"
        }).pipe(
          Effect.provideService(FileSystem.FileSystem, slowFs),
          Effect.provideService(ProcessTable, table),
          Random.withSeed(seed)
        )
        assert.isAbove(acquired, 30)
        assert.isAbove(died, 10)
        assert.isAtMost(locks(directory).length, 2)
      })
    )
  }
})

describe("awaitRequest", () => {
  live(
    "a holder obeys the bridge that the listening file names, and nobody else",
    Effect.gen(function*() {
      const directory = yield* temporary
      let named = "old"
      const waiting = yield* Effect.forkChild(SessionLock.awaitRequest({
        directory,
        launch: "old",
        listening: Effect.suspend(() => listening(named))
      }))
      const request = (launch: string, reason: string) =>
        Fs.writeFileSync(join(directory, "request.json"), JSON.stringify({ launch, reason }))
      // Its own, another's that isn't named, none that makes sense, none while nobody is named.
      request("old", "stopped")
      yield* Effect.sleep("1500 millis")
      request("unnamed", "host")
      yield* Effect.sleep("1500 millis")
      Fs.writeFileSync(join(directory, "request.json"), "{")
      named = "new"
      yield* Effect.sleep("1500 millis")
      assert.isUndefined(waiting.pollUnsafe())
      request("new", "destroyed")
      assert.strictEqual(yield* Effect.timeout(Fiber.join(waiting), "10 seconds"), "destroyed")
    })
  )
})

const hold = (mode: "obey" | "ignore", directory: string, options: { readonly listeningFile: string }) =>
  Effect.gen(function*() {
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(process.execPath, [
          new URL("fixtures/lockHolder.ts", import.meta.url).pathname,
          mode,
          directory,
          options.listeningFile,
          "old-launch"
        ], { stdio: ["ignore", "pipe", "inherit"] })
      ),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    )
    let text = ""
    child.stdout.on("data", (data: Buffer) => text += data.toString())
    yield* eventually("a holder", Effect.sync(() => text === "Acquired\n"))
    return { child, text: () => text }
  })

describe("take", { concurrent: true }, () => {
  const setUp = Effect.gen(function*() {
    const root = yield* temporary
    const listeningFile = join(root, "listening.json")
    const name = (launch: string) =>
      Fs.writeFileSync(
        listeningFile,
        JSON.stringify({ protocol: 1, bridge: "b1", launch, port: 4000, pid: process.pid })
      )
    name("old-launch")
    return {
      directory: join(root, "s1"),
      listeningFile,
      name,
      listening: Effect.sync((): Bridge.ListeningFile => JSON.parse(Fs.readFileSync(listeningFile, "utf8")))
    }
  })

  live(
    "a free session is taken at once, and an old request is gone",
    Effect.gen(function*() {
      const { directory, listening, name } = yield* setUp
      name("new-launch")
      Fs.writeFileSync(join(directory, "request.json"), JSON.stringify({ launch: "other", reason: "host" }))
      yield* SessionLock.take({ directory, session, holder: yield* holder("new-launch"), reason: "host", listening })
      assert.deepStrictEqual(Fs.readdirSync(directory).sort(), ["lock-1", "turns"])
    })
  )

  live(
    "a new session's directory is made, one that is being destroyed isn't brought back by a look",
    Effect.gen(function*() {
      const { directory, listening, name } = yield* setUp
      name("new-launch")
      Fs.rmdirSync(directory)
      assert.instanceOf(yield* Effect.flip(tryHeld(directory, "new-launch")), Bridge.LogUnavailable)
      assert.isFalse(Fs.existsSync(directory))
      yield* SessionLock.take({ directory, session, holder: yield* holder("new-launch"), reason: "host", listening })
      assert.deepStrictEqual(Fs.readdirSync(directory).sort(), ["lock-1", "turns"])
      for (const path of [directory, join(directory, "turns")]) {
        assert.strictEqual(Fs.statSync(path).mode & 0o777, 0o700)
      }
    })
  )

  live(
    "the holder is asked, and hands the session over for the reason that it's told",
    Effect.gen(function*() {
      const { directory, listening, listeningFile, name } = yield* setUp
      const old = yield* hold("obey", directory, { listeningFile })
      name("new-launch")
      const me = yield* holder("new-launch")
      yield* SessionLock.take({ directory, session, holder: me, reason: "destroyed", listening })
      yield* eventually("its end", Effect.sync(() => old.child.exitCode === 0))
      assert.strictEqual(old.text(), "Acquired\ndestroyed\n")
      // Made to be removed, it has no place for turns.
      assert.deepStrictEqual(Fs.readdirSync(directory), ["lock-2"])
      assert.deepStrictEqual(yield* tryHeld(directory, "third"), { _tag: "Held", holder: me })
    })
  )

  live(
    "a holder that doesn't is killed after 10 s, and gone when the session is taken",
    Effect.gen(function*() {
      const { directory, listening, listeningFile, name } = yield* setUp
      const old = yield* hold("ignore", directory, { listeningFile })
      name("new-launch")
      const started = performance.now()
      yield* SessionLock.take({
        directory,
        session,
        holder: yield* holder("new-launch"),
        reason: "bridge-replaced",
        listening
      })
      assert.isAbove(performance.now() - started, 9500)
      assert.isUndefined(yield* portable.identify(old.child.pid!))
      yield* eventually("its end", Effect.sync(() => old.child.signalCode === "SIGKILL"))
      assert.isFalse(Fs.existsSync(join(directory, "request.json")))
    })
  )

  live(
    "a bridge that was replaced asks nobody and kills nobody",
    Effect.gen(function*() {
      const { directory, listening, listeningFile, name } = yield* setUp
      const old = yield* hold("obey", directory, { listeningFile })
      name("yet-another")
      const error = yield* Effect.flip(SessionLock.take({
        directory,
        session,
        holder: yield* holder("replaced"),
        reason: "host",
        listening
      }))
      assert.deepStrictEqual(error, new Bridge.SessionBusy({ session, port: 4001, launch: "old-launch" }))
      assert.isFalse(Fs.existsSync(join(directory, "request.json")))
      assert.isNull(old.child.exitCode)
    })
  )

  live(
    "a holder that can't be seen from here is left alone, and the session is busy",
    Effect.gen(function*() {
      const { directory, listening, name } = yield* setUp
      name("new-launch")
      const elsewhere = yield* holder("elsewhere", { pid: 1, port: 4002, pidNamespace: "another" })
      put(directory, 1, elsewhere)
      const error = yield* Effect.flip(SessionLock.take({
        directory,
        session,
        holder: yield* holder("new-launch"),
        reason: "host",
        listening
      }))
      assert.deepStrictEqual(error, new Bridge.SessionBusy({ session, port: 4002, launch: "elsewhere" }))
    })
  )
})
