/**
 * The processes of a run, and the directory they share.
 */
import { Bridge } from "@gangway/protocol"
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { BareHost } from "./bareHost.ts"
import type { BenchBridge } from "./bridge.ts"
import { Child } from "./Child.ts"
import type { Host } from "./host.ts"

const token = "TOKEN-FOR-BENCHMARKS-OF-32-CHARACTERS"

/** A measured bridge, and a host that's connected to it. */
export interface Pair {
  readonly bridge: Child<BenchBridge>
  readonly host: Child<Host>
  readonly port: number
}

/** The bare server, and its client. */
export interface BarePair {
  readonly host: Child<BareHost>
  readonly port: number
}

/** Reads a listening file once it's there. */
export const listening = async (file: string): Promise<{ readonly port: number; readonly pid: number }> => {
  const deadline = performance.now() + 20_000
  while (!existsSync(file)) {
    if (performance.now() > deadline) throw new Error(`${file} didn't come to be`)
    // Ahead of all other work, looking without a pause would keep the system from writing to its disk.
    await Bun.sleep(1)
  }
  return JSON.parse(readFileSync(file, "utf8"))
}

/** The line that a bridge is launched with. */
export const launchLine = (stateDirectory: string, agentOptions: Bridge.AgentOptions): string =>
  `${
    JSON.stringify({
      token,
      bridge: Bridge.BridgeId.make("bench"),
      stateDirectory,
      hostname: "127.0.0.1",
      agentOptions
    })
  }\n`

/** Everything that a run starts and writes. */
export class World {
  readonly directory = realpathSync(mkdtempSync(join(tmpdir(), "gangway-bench-")))
  private readonly children = new Set<{ readonly end: () => Promise<void> }>()
  private made = 0

  /** Starts a program, which ends with the run at the latest. */
  start<C extends Child<never>>(child: C): C {
    this.children.add(child)
    return child
  }

  async end(child: Child<never>): Promise<void> {
    this.children.delete(child)
    await child.end()
  }

  path(name: string): string {
    return join(this.directory, `${name}-${++this.made}`)
  }

  async pair(): Promise<Pair> {
    const state = this.path("state")
    const bridge = this.start(new Child<BenchBridge>("bridge.ts", { input: launchLine(state, { agent: "puppet" }) }))
    const { port } = await listening(Bridge.listeningFile(state))
    const host = this.start(new Child<Host>("host.ts"))
    const pair = { bridge, host, port }
    await this.connect(pair, port)
    return pair
  }

  /** Connects the pair's host through another port. */
  async connect({ host }: Pair, port: number): Promise<void> {
    const directory = join(this.directory, "work")
    mkdirSync(directory, { recursive: true })
    await host.call("connect", { port, token, directory })
  }

  async barePair(): Promise<BarePair> {
    const file = this.path("bare")
    this.start(new Child("bareServer.ts", { arguments: [file] }))
    const { port } = await listening(file)
    const host = this.start(new Child<BareHost>("bareHost.ts"))
    await host.call("connect", port)
    return { host, port }
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.children, (child) => child.end()))
    rmSync(this.directory, { recursive: true, force: true })
  }
}
