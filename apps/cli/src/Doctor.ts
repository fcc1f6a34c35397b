/**
 * What this machine has of all that `gangway` may need, and how to get what it hasn't.
 */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import * as BridgeProgram from "./BridgeProgram.ts"
import * as FoundAgents from "./FoundAgents.ts"
import { Registry } from "./Registry.ts"
import { account } from "./sandboxes/Daytona.ts"

/** Something that was looked at. */
export interface Check {
  readonly check: string
  /** `ok`; `missing` where it's needed for something else only; `failed` where what was asked for doesn't work so. */
  readonly status: "ok" | "missing" | "failed"
  /** What was found. */
  readonly found: string
  /** What to do. */
  readonly remedy?: string | undefined
}

/** What is to work. */
export interface Needs {
  /** Absent, any agent. */
  readonly agent: string | undefined
  readonly sandbox: "local" | "docker" | "daytona"
}

/** Looks at all of it. */
export const examine = Effect.fnUntraced(function*(needs: Needs, bridgeCommand: Option.Option<string>) {
  const checks = yield* Effect.all([
    Effect.map(bridgeProgram(bridgeCommand), (one) => [one]),
    agents(needs, bridgeCommand),
    Effect.map(stateDirectory, (one) => [one]),
    Effect.map(docker(needs), (one) => [one]),
    Effect.map(daytona(needs), (one) => [one]),
    Effect.map(git, (one) => [one]),
    Effect.map(node, (one) => [one])
  ], { concurrency: "unbounded" })
  return [runtime, system, ...checks.flat()]
})

const runtime: Check = { check: "bun", status: "ok", found: process.versions.bun ?? "none" }

const system: Check = process.platform === "linux"
  ? { check: "system", status: "ok", found: `Linux, ${process.arch}` }
  : {
    check: "system",
    status: "missing",
    found: process.platform,
    remedy:
      "elsewhere than on Linux, what an agent leaves behind in a session of its own isn't found: use --sandbox docker"
  }

const bridgeProgram = (given: Option.Option<string>) =>
  Effect.gen(function*() {
    const [program, ...args] = yield* BridgeProgram.find(given)
    const { exitCode, stderr, stdout } = yield* Effect.catch(
      probe([program, ...args, "--version"]),
      ({ message }) => Effect.succeed({ exitCode: 127, stdout: "", stderr: message })
    )
    return exitCode === 0
      ? { check: "bridge program", status: "ok", found: `${stdout}, ${[program, ...args].join(" ")}` } satisfies Check
      : failed("bridge program", `${program}: ${stderr}`, "name another one with --bridge-command or GANGWAY_BRIDGE")
  }).pipe(
    Effect.catch(({ message }) => Effect.succeed(failed("bridge program", "not found", message)))
  )

const agents = Effect.fnUntraced(function*({ agent, sandbox }: Needs, bridgeCommand: Option.Option<string>) {
  // An agent in a sandbox is that one's.
  if (sandbox !== "local") return []
  const found = yield* Effect.option(Effect.flatMap(BridgeProgram.find(bridgeCommand), FoundAgents.ask))
  // That there's no bridge program is told already.
  if (Option.isNone(found)) return []
  const checks = found.value.map((one): Check =>
    one.status === "ready"
      ? { check: one.agent, status: "ok", found: one.version }
      : {
        check: one.agent,
        status: one.agent === agent ? "failed" : "missing",
        found: one.status === "missing" ? "not found" : one.problem,
        remedy: one.install
      }
  )
  if (agent === undefined) {
    return checks.some(({ status }) => status === "ok")
      ? checks
      : [...checks, failed("agents", "none is ready", "install one of those above: 'gangway demo' works without")]
  }
  return found.value.some((one) => one.agent === agent)
    ? checks
    : [...checks, failed(agent, "not known", `known are ${found.value.map((one) => one.agent).join(", ")}`)]
})

const stateDirectory = Effect.gen(function*() {
  const { root, tokens } = yield* Registry
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const open: Array<string> = []
  const look = Effect.fnUntraced(function*(file: string) {
    if (((yield* fs.stat(file)).mode & 0o077) !== 0) open.push(file)
  })
  yield* look(root)
  if (yield* fs.exists(tokens)) {
    yield* look(tokens)
    for (const name of yield* fs.readDirectory(tokens)) yield* look(path.join(tokens, name))
  }
  const temporary = path.join(root, `.doctor.${process.pid}`)
  yield* fs.writeFileString(temporary, "", { mode: 0o600 })
  yield* fs.remove(temporary)
  if (open.length === 0) return { check: "state directory", status: "ok", found: root } satisfies Check
  return failed(
    "state directory",
    `others may read ${open.join(", ")}`,
    `chmod -R go= ${root}, and end the bridges whose tokens others may have`
  )
}).pipe(
  Effect.catch(({ message }) =>
    Effect.succeed(failed("state directory", message, "let your user write there, or name another with XDG_STATE_HOME"))
  )
)

const docker = Effect.fnUntraced(function*({ sandbox }: Needs) {
  const lacks = (found: string, remedy: string): Check => ({
    check: "docker",
    status: sandbox === "docker" ? "failed" : "missing",
    found,
    remedy
  })
  const { exitCode, stderr, stdout } = yield* tried(["docker", "version", "--format", "{{.Server.Version}}"])
  if (exitCode === 127) return lacks("not found", "install Docker's command line and an engine, for --sandbox docker")
  if (exitCode === 0) return { check: "docker", status: "ok", found: `engine ${stdout}` } satisfies Check
  return lacks(
    stderr === "" ? `exit code ${exitCode}` : stderr,
    /permission denied/i.test(stderr)
      ? "let your user use the engine's socket, such as by the group docker"
      : "start the engine, or say by DOCKER_HOST or a context where it is"
  )
})

const daytona = Effect.fnUntraced(function*({ sandbox }: Needs) {
  const key = yield* account
  return Option.isSome(key)
    ? { check: "daytona", status: "ok", found: "DAYTONA_API_KEY is set" } satisfies Check
    : {
      check: "daytona",
      status: sandbox === "daytona" ? "failed" : "missing",
      found: "no key",
      remedy: "set DAYTONA_API_KEY, for --sandbox daytona"
    } satisfies Check
})

const git = Effect.gen(function*() {
  const { stdout } = yield* tried(["git", "--version"])
  const [, major = "0", minor = "0"] = /(\d+)\.(\d+)/.exec(stdout) ?? []
  const fits = Number(major) * 1000 + Number(minor) >= 2038
  return {
    check: "git",
    status: fits ? "ok" : "missing",
    found: stdout.replace("git version ", "") || "not found",
    ...(fits ? {} : { remedy: "install Git 2.38 or newer, for copies: 'gangway diff' and 'gangway pull'" })
  } satisfies Check
})

const failed = (check: string, found: string, remedy: string): Check => ({ check, status: "failed", found, remedy })

const patience = "20 seconds"

// Runs a program to its end, and gives what it said.
const probe = Effect.fnUntraced(
  function*([program, ...args]: readonly [string, ...Array<string>]) {
    const { root } = yield* Registry
    const spawner = yield* ChildProcessSpawner
    const child = yield* spawner.spawn(
      ChildProcess.make(program, args, { cwd: root, extendEnv: true, stdin: "ignore" })
    )
    const text = (bytes: typeof child.stdout) => Stream.mkString(Stream.decodeText(bytes))
    const said = yield* Effect.forkChild(text(child.stderr))
    const stdout = (yield* text(child.stdout)).trim()
    const exitCode = yield* child.exitCode
    return { exitCode: Number(exitCode), stdout, stderr: (yield* Fiber.join(said)).trim() }
  },
  Effect.scoped,
  Effect.timeout(patience)
)

// As a shell tells that there's no such program.
const tried = (command: Parameters<typeof probe>[0]) =>
  Effect.orElseSucceed(probe(command), () => ({ exitCode: 127, stdout: "", stderr: "" }))

const node = Effect.map(
  tried(["node", "--version"]),
  ({ exitCode, stdout }): Check =>
    exitCode === 0
      ? { check: "node", status: "ok", found: stdout }
      : {
        check: "node",
        status: "missing",
        found: "not found",
        remedy: "install Node 22 or newer, with npm, for agents that npm installs"
      }
)
