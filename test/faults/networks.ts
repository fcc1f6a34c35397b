/**
 * Several hosts that read one turn, each over a network that cuts, refuses and splits what passes through it.
 */
import { BunServices } from "@effect/platform-bun"
import { BridgeClient, Launcher, TokenStore, Turn } from "@gangway/client"
import { Scripted } from "@gangway/drivers"
import { Bridge } from "@gangway/protocol"
import { LocalSandbox } from "@gangway/sandbox"
import { Effect, FileSystem, Layer, Redacted, Schema, Stream } from "effect"
import * as Random from "../chaos/Random.ts"
import { TcpProxy } from "../integration/TcpProxy.ts"

const token = "a-token-that-has-32-characters-at-least"
const bridge = Bridge.BridgeId.make("b1")
const program = new URL("../../apps/bridge/src/main.ts", import.meta.url).pathname

/** What launches a bridge. */
export const layer = Launcher.layer({ command: [process.execPath, program] }).pipe(
  Layer.provide([LocalSandbox.layer, TokenStore.layerToken(Redacted.make(token))]),
  Layer.provideMerge(BunServices.layer)
)

export interface Counts {
  readonly parts: number
  /** How many connections each host had. */
  readonly connections: ReadonlyArray<number>
  readonly end: Bridge.End["type"]
}

/** Plays a turn; fails with what a host didn't get, got twice, or got as something else than the others. */
export const run = Effect.fnUntraced(function*(options: {
  readonly seed: number
  readonly hosts: number
  readonly parts: number
}) {
  const fs = yield* FileSystem.FileSystem
  const { connect } = yield* Launcher.Launcher
  const root = yield* fs.makeTempDirectoryScoped()
  const stateDirectory = `${root}/state`
  yield* fs.makeDirectory(`${root}/work`)
  const listening = fs.readFileString(Bridge.listeningFile(stateDirectory)).pipe(
    Effect.flatMap(Schema.decodeEffect(Schema.fromJsonString(Bridge.ListeningFile)))
  )
  yield* Effect.addFinalizer(() =>
    Effect.ignore(Effect.flatMap(listening, ({ pid }) => Effect.try(() => process.kill(pid, "SIGKILL"))))
  )
  yield* connect({
    bridge,
    stateDirectory,
    agentOptions: { agent: "scripted", home: `${root}/agent` },
    idleTimeout: "1 minute"
  })
  const { port } = yield* listening

  const read = Effect.fnUntraced(function*(host: number) {
    const random = Random.make(options.seed + host)
    const proxy = yield* Effect.acquireRelease(
      Effect.sync(() => new TcpProxy(() => port)),
      (proxy) => Effect.sync(() => proxy.stop())
    )
    proxy.pieces = host === 0 ? 1 : random.integer(2, 40)
    // So that each connection brings something, most are longer than the largest frame.
    const next = () => random.chance(0.1) ? random.integer(1, 2000) : random.integer(300_000, 900_000)
    let left = next()
    proxy.onBytes = (bytes) => {
      left -= bytes
      if (left > 0) return undefined
      left = next()
      if (random.chance(0.3)) {
        proxy.isRefusing = true
        setTimeout(() => proxy.isRefusing = false, random.integer(0, 150))
      }
      return "cut"
    }
    const client = yield* BridgeClient.make({
      bridge,
      address: Effect.sync(() => ({
        url: new URL(`http://127.0.0.1:${proxy.port}`),
        token: Redacted.make(token)
      }))
    })
    const session = yield* client.startSession({
      session: Bridge.SessionId.make("s1"),
      directory: `${root}/work`,
      permissions: "all"
    })
    const turn = yield* session.startTurn({
      turn: Bridge.TurnId.make("t1"),
      prompt: Scripted.toPrompt({
        seed: 1,
        steps: [{ actions: [{ type: "burst", parts: options.parts, size: 60 }] }]
      })
    })
    const digest = new Bun.CryptoHasher("sha256")
    let parts = 0
    let expected = 1
    yield* Stream.runForEach(turn.parts(), (part) =>
      Effect.sync(() => {
        if (part.n !== expected) throw new Error(`host ${host}: part ${part.n} came in the place of ${expected}`)
        expected = Turn.nextNumber(part)
        parts++
        digest.update(JSON.stringify([part.n, part.part]))
      }))
    return { parts, digest: digest.digest("hex"), end: (yield* turn.end).type, connections: proxy.opened }
  })

  const hosts = yield* Effect.forEach(Array.from({ length: options.hosts }, (_, host) => host), read, {
    concurrency: "unbounded"
  })
  const [first] = hosts
  for (const { digest } of hosts) {
    if (digest !== first!.digest) return yield* Effect.die(new Error("two hosts have read different parts"))
  }
  return {
    parts: first!.parts,
    connections: hosts.map(({ connections }) => connections),
    end: first!.end
  } satisfies Counts
}, Effect.scoped)
