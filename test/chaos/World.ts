/**
 * A state directory of its own, the bridge program as this place's alone, and what runs there.
 */
import { Bridge } from "@gangway/protocol"
import { markerName } from "@gangway/server/Supervisor"
import { type ChildProcess, spawn } from "node:child_process"
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { isRunning, killAll } from "../../packages/server/test/fixtures/processes.ts"
import * as Faults from "./Faults.ts"

export const token = "a-token-of-at-least-thirty-two-characters"
export const bridge = Bridge.BridgeId.make("b1")
export const session = Bridge.SessionId.make("s1")
export const turn = Bridge.TurnId.make("t1")

/** A process that still is the one that was seen. */
export interface Seen {
  readonly pid: number
  readonly start: string
}

/** The programs of a run, bundled: that halves the time of their start. */
export interface Programs {
  /** The bridge program as it is. */
  readonly bridge: string
  /** The one that kills itself. */
  readonly faulty: string
}

/** Bundles the programs into a directory. */
export const bundle = async (outdir: string): Promise<Programs> => {
  const build = async (source: string, naming: string) => {
    const entrypoint = new URL(source, import.meta.url).pathname
    await Bun.build({ entrypoints: [entrypoint], target: "bun", minify: true, outdir, naming })
    return join(outdir, naming)
  }
  return {
    bridge: await build("../../apps/bridge/src/main.ts", "bridge.js"),
    faulty: await build("./bridge.ts", "faulty.js")
  }
}

/** The bridge program's source. */
export const source = new URL("../../apps/bridge/src/main.ts", import.meta.url).pathname

export class World {
  readonly root: string
  readonly state: string
  readonly work: string
  readonly home: string
  readonly faults: string
  /** Its path is this place's alone, so that a bridge is known by its command. */
  readonly program: string
  readonly environment: Readonly<Record<string, string>>
  /** The port that bridges are given; absent, the system chooses. */
  readonly port: number | undefined
  private readonly older = new Set(pids())

  constructor(program: string, options: { readonly hasPort?: boolean; readonly isPortable?: boolean } = {}) {
    this.port = options.hasPort === true ? freePort() : undefined
    this.root = realpathSync(mkdtempSync(join(tmpdir(), "gangway-chaos-")))
    this.state = join(this.root, "state")
    this.work = join(this.root, "work")
    this.home = join(this.root, "home")
    this.faults = join(this.root, "faults")
    this.program = join(this.root, `program${program.slice(program.lastIndexOf("."))}`)
    this.environment = {
      [Faults.variable]: this.faults,
      ...(options.isPortable === true ? { [Faults.portableVariable]: "1" } : {})
    }
    mkdirSync(this.work)
    mkdirSync(this.faults)
    symlinkSync(program, this.program)
  }

  /** A launch line. */
  line(options: { readonly launch: string; readonly idleTimeout?: string }): string {
    return JSON.stringify({
      token,
      bridge,
      stateDirectory: this.state,
      hostname: "127.0.0.1",
      agentOptions: { agent: "scripted", home: this.home },
      ...(this.port === undefined ? {} : { port: this.port }),
      ...options
    })
  }

  /** Launches a bridge, as a sandbox would: it outlives its host. */
  launch(launch: string, options: { readonly idleTimeout?: string; readonly endInput?: boolean } = {}): ChildProcess {
    const { endInput = true, ...line } = options
    const log = openSync(join(this.root, "bridge.log"), "a")
    const child = spawn(process.execPath, [this.program], {
      detached: true,
      stdio: ["pipe", log, log],
      env: { ...process.env, ...this.environment }
    })
    closeSync(log)
    child.stdin!.on("error", () => {})
    child.stdin!.write(`${this.line({ launch, ...line })}\n`)
    if (endInput) child.stdin!.end()
    return child
  }

  listening(): Bridge.ListeningFile | undefined {
    return readJson(Bridge.listeningFile(this.state))
  }

  /** The bridges that run. What a bridge starts looks like the bridge itself until it's another program. */
  bridges(): ReadonlyArray<number> {
    const alike = new Set(
      pids().filter((pid) => {
        if (this.older.has(pid)) return false
        const args = read(`/proc/${pid}/cmdline`).split("\0")
        return args.length === 3 && args[1] === this.program
      })
    )
    return [...alike].filter((pid) => !alike.has(parentOf(pid)))
  }

  sessionFile(id: string = session): any {
    return readJson(join(this.state, "sessions", id, "session.json"))
  }

  /** The bridge that holds the session. */
  holder(id: string = session): number | undefined {
    const directory = join(this.state, "sessions", id)
    const numbers = names(directory).flatMap((name) => /^lock-\d+$/.test(name) ? [Number(name.slice(5))] : [])
    return numbers.length === 0 ? undefined : readJson(join(directory, `lock-${Math.max(...numbers)}`))?.holder?.pid
  }

  turnFile(id: string = session, turnId: string = turn): string {
    return join(this.state, "sessions", id, "turns", `${turnId}.ndjson`)
  }

  /** The turn's file up to its last newline; empty while the session's file doesn't name the turn. */
  wholeLines(): string {
    if (this.sessionFile()?.latest?.turn !== turn) return ""
    const text = read(this.turnFile(), "utf8")
    return text.slice(0, text.lastIndexOf("\n") + 1)
  }

  /** The agent's processes that run. */
  agents(): ReadonlyArray<Seen> {
    const marker = this.sessionFile()?.marker
    if (marker === undefined) return []
    const entry = `${markerName}=${marker}`
    return pids().flatMap((pid) =>
      !this.older.has(pid) && read(`/proc/${pid}/environ`).split("\0").includes(entry) && isRunning(pid)
        ? [{ pid, start: startOf(pid) }]
        : []
    )
  }

  /** Ends what runs, and removes the files. */
  close(options: { readonly keep: boolean } = { keep: false }): void {
    killAll(this.bridges())
    killAll(this.agents().map(({ pid }) => pid))
    if (!options.keep) rmSync(this.root, { recursive: true, force: true, maxRetries: 5 })
  }
}

export const isSame = ({ pid, start }: Seen): boolean => isRunning(pid) && startOf(pid) === start

/** Waits for a condition; fails with what was waited for. */
export const until = async <A>(what: string, look: () => A | undefined | false, seconds = 30): Promise<A> => {
  const deadline = performance.now() + seconds * 1000
  while (performance.now() < deadline) {
    const found = look()
    if (found !== undefined && found !== false) return found
    await Bun.sleep(10)
  }
  throw new Error(`${what}: it didn't happen within ${seconds} s`)
}

const freePort = (): number => {
  const server = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } })
  server.stop(true)
  return server.port
}

export const readJson = (path: string): any => {
  try {
    return JSON.parse(readFileSync(path, "utf8"))
  } catch {
    return undefined
  }
}

const read = (path: string, encoding: BufferEncoding = "latin1"): string => {
  try {
    return readFileSync(path, encoding)
  } catch {
    return ""
  }
}

const names = (directory: string): ReadonlyArray<string> => {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}

const pids = (): ReadonlyArray<number> => readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number)

// The fields after the command's name, from the third on.
const statOf = (pid: number): ReadonlyArray<string> => {
  const stat = read(`/proc/${pid}/stat`)
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")
}

const parentOf = (pid: number): number => Number(statOf(pid)[1])

const startOf = (pid: number): string => statOf(pid)[19] ?? ""
