import { assert, beforeAll, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { spawnSync } from "node:child_process"
import { dirname } from "node:path"
import * as Docker from "../../../test/docker/Docker.ts"
import { prompt, run as runIt, start as startIt, test, until, type User } from "./fixtures/Gangway.ts"

let engine: Docker.Docker["Service"]

// Which engine it is, and where the bridge's builds are.
const env = () => ({ ...Docker.variables(engine), GANGWAY_BRIDGE_BUILDS: dirname(engine.bridge) })

const run = (user: User, ...args: ReadonlyArray<string>) => runIt(user, args, { env: env() })
const start = (user: User, ...args: ReadonlyArray<string>) => startIt(user, args, { env: env() })

const scripted = (...args: ReadonlyArray<string>) => ["run", ...args, "--agent", "scripted", "--permissions", "all"]
const contained = (
  ...args: ReadonlyArray<string>
) => [...scripted(...args), "--sandbox", "docker", "--image", engine.image]

const docker = (...args: ReadonlyArray<string>) =>
  spawnSync(engine.client[0], [...engine.client.slice(1), ...args], { encoding: "utf8" }).stdout.trim()

// By the classic builder: the other one is a plugin that may not be there.
const build = (directory: string, args: Readonly<Record<string, string>>) => {
  const words = Object.entries(args).flatMap(([name, value]) => ["--build-arg", `${name}=${value}`])
  const { status, stderr, stdout } = spawnSync(
    engine.client[0],
    [...engine.client.slice(1), "build", "--quiet", ...words, "--file", dockerfile, directory],
    { encoding: "utf8", env: { ...process.env, DOCKER_BUILDKIT: "0" } }
  )
  assert.strictEqual(status, 0, stderr)
  return stdout.trim()
}

const dockerfile = new URL("../../../deploy/docker/Dockerfile", import.meta.url).pathname

const containers = ({ directory }: User) => {
  const filter = `label=dev.gangway.directory=${directory}`
  return docker("ps", "--all", "--quiet", "--filter", filter).split("\n").filter((id) => id !== "")
}

const listening = "/var/tmp/gangway/state/listening.json"

describe("gangway with Docker", {
  skip: Docker.skipped !== undefined,
  meta: { skipped: Docker.skipped }
}, () => {
  beforeAll(async () => {
    engine = await Effect.runPromise(Docker.Docker.pipe(Effect.provide(Docker.layer)))
  }, Docker.patience)

  test("runs a turn in a container that has the directory, and goes on there", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      yield* fs.writeFileString(`${user.directory}/given`, "here\n")
      const first = yield* run(
        user,
        ...contained(
          prompt(
            { type: "tool", name: "Bash", command: ["sh", "-c", "cat given; echo in $(hostname)"] },
            { type: "file", path: "made.txt", text: "by the agent\n" }
          ),
          "--directory",
          ".",
          "--session",
          "s1"
        )
      )
      assert.strictEqual(first.exitCode, 0, first.stderr)
      assert.include(first.stderr, `gangway: creating a container of ${engine.image}\n`)
      const [container, ...others] = containers(user)
      assert.deepStrictEqual(others, [])
      assert.include(first.stdout, "here")
      assert.include(first.stdout, `in ${container}`)
      assert.strictEqual(yield* fs.readFileString(`${user.directory}/made.txt`), "by the agent\n")

      // The same words again, and the bridge's name alone, are the same container and session, also after its stop.
      docker("stop", container!)
      const second = yield* run(user, ...contained(prompt({ type: "describe" }), "--session", "s1"))
      assert.strictEqual(second.exitCode, 0, second.stderr)
      assert.include(second.stdout, "cat given")
      const bridge = /bridge (scripted-[0-9a-f]{8})/.exec(second.stderr)![1]!
      const third = yield* run(user, ...scripted(prompt({ type: "text", text: "Third." }), "--bridge", bridge))
      assert.strictEqual(third.exitCode, 0, third.stderr)
      assert.notInclude(third.stderr, "creating")
      assert.deepStrictEqual(containers(user), [container])
      assert.strictEqual(docker("exec", container!, "ls", "/var/tmp/gangway/bin").split("\n").length, 1)

      // Where the container is gone, there's a new one.
      docker("rm", "--force", container!)
      const anew = yield* run(user, ...contained(prompt({ type: "text", text: "Anew." })))
      assert.strictEqual(anew.exitCode, 0, anew.stderr)
      assert.notDeepEqual(containers(user), [container])
    }))

  test("leaves the turn running when it's killed, and attach reads on", (user) =>
    Effect.gen(function*() {
      const host = yield* start(
        user,
        ...contained(
          prompt(
            { type: "text", text: "Begun." },
            { type: "tool", name: "Wait", command: ["sh", "-c", "until [ -e go ]; do sleep 0.1; done; echo gone on"] },
            { type: "text", text: "Done." }
          ),
          "--session",
          "s1"
        )
      )
      yield* until(() => host.stdout().includes("Wait"))
      process.kill(host.pid, "SIGKILL")
      yield* host.ended
      const fs = yield* FileSystem.FileSystem
      yield* fs.writeFileString(`${user.directory}/go`, "")
      const rest = yield* run(user, "attach", "--session", "s1", "--once", "--json")
      assert.strictEqual(rest.exitCode, 0, rest.stderr)
      assert.include(rest.stdout, "gone on")
      assert.notInclude(rest.stdout, "turn-continued")
      assert.match(rest.stdout, /"type":"finished".*\n$/)
    }))

  test("makes one container where two begin at once", (user) =>
    Effect.gen(function*() {
      const ran = yield* Effect.forEach(
        ["one", "two"],
        (text) => run(user, ...contained(prompt({ type: "text", text }), "--session", text)),
        { concurrency: "unbounded" }
      )
      for (const [index, { exitCode, stderr, stdout }] of ran.entries()) {
        assert.strictEqual(exitCode, 0, stderr)
        assert.include(stdout, ["one", "two"][index]!)
      }
      assert.strictEqual(containers(user).length, 1)
    }))

  test("lists containers, and prunes the ones that nothing runs in", (user) =>
    Effect.gen(function*() {
      const first = yield* run(user, ...contained("hello"))
      assert.strictEqual(first.exitCode, 0, first.stderr)
      const [container] = containers(user)
      const listed = yield* run(user, "sandboxes", "list")
      assert.include(listed.stdout, `${container}  gangway-scripted-`)
      assert.match(listed.stdout, new RegExp(`running  bridge scripted-[0-9a-f]{8} in ${user.directory}\n`))

      // Its bridge is still there.
      const kept = yield* run(user, "sandboxes", "prune")
      assert.strictEqual(kept.exitCode, 0, kept.stderr)
      assert.notInclude(kept.stdout, container!)
      docker("exec", container!, "sh", "-c", `kill -9 $(sed 's/.*"pid":\\([0-9]*\\).*/\\1/' ${listening})`)
      const pruned = yield* run(user, "sandboxes", "prune")
      assert.include(pruned.stdout, `removed ${container}  `)
      assert.deepStrictEqual(containers(user), [])
    }))

  test("works on a copy in an image without Git, and takes the changes back", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const at = (name: string) => `${user.directory}/${name}`
      yield* fs.writeFileString(at("given"), "here\n")
      yield* fs.writeFile(at("binary"), new Uint8Array([0, 255]))
      const ran = yield* run(
        user,
        ...contained(
          prompt({
            type: "tool",
            name: "Bash",
            command: [
              "sh",
              "-c",
              "cat given; rm given; printf '\\000\\001' >binary; mkdir a && echo new >'a/new one'; chmod +x 'a/new one'"
            ]
          }),
          "--copy",
          "--session",
          "s1"
        )
      )
      assert.strictEqual(ran.exitCode, 0, ran.stderr)
      assert.include(ran.stdout, "here")
      assert.strictEqual(yield* fs.readFileString(at("given")), "here\n")
      const [container] = containers(user)
      assert.notInclude(docker("inspect", "--format", "{{json .Mounts}}", container!), user.directory)
      docker("stop", "--time", "1", container!)
      const patch = yield* run(user, "diff")
      assert.strictEqual(patch.exitCode, 0, patch.stderr)
      assert.include(patch.stdout, "GIT binary patch")
      const pulled = yield* run(user, "pull")
      assert.strictEqual(pulled.exitCode, 0, pulled.stderr)
      assert.strictEqual(pulled.stdout, "new  a/new one\nchanged  binary\ndeleted  given\n")
      assert.isFalse(yield* fs.exists(at("given")))
      assert.deepStrictEqual([...yield* fs.readFile(at("binary"))], [0, 1])
      assert.strictEqual(Number((yield* fs.stat(at("a/new one"))).mode) & 0o777, 0o755)

      // A container that's gone isn't created for it.
      docker("rm", "--force", container!)
      assert.include((yield* run(user, "pull")).stderr, "is gone")
      assert.deepStrictEqual(containers(user), [])
    }))

  test("uses a container that exists, with a copy, and says what an image lacks", (user) =>
    Effect.gen(function*() {
      const name = `gangway-test-${user.root.split("-").at(-1)}`
      const options = ["--detach", "--init", "--name", name, "--publish", "127.0.0.1::4321", "--user", "agent"]
      docker("run", ...options, engine.image, "sleep", "1000")
      yield* Effect.addFinalizer(() => Effect.sync(() => docker("rm", "--force", name)))
      yield* FileSystem.FileSystem.use((fs) => fs.writeFileString(`${user.directory}/given`, "here\n"))
      const existing = ["--sandbox", "docker", "--sandbox-id", name]
      const shell = (script: string) => prompt({ type: "tool", name: "Bash", command: ["sh", "-c", script] })
      const ran = yield* run(user, ...scripted(shell("cat given; id -un; echo x > made")), ...existing)
      assert.strictEqual(ran.exitCode, 0, ran.stderr)
      assert.match(ran.stdout, /here[^]*agent/)
      assert.strictEqual((yield* run(user, "pull")).stdout, "new  made\n")

      // Busybox's own shell would find them in itself.
      docker("exec", "--user", "root", name, "sh", "-c", "rm /bin/tar /bin/xargs; ln -sf bash /bin/sh")
      const lacking = yield* run(user, ...scripted("x"), ...existing, "--bridge", "b2")
      assert.strictEqual(lacking.exitCode, 2, lacking.stderr)
      assert.include(lacking.stderr, "the sandbox has no tar and no xargs, which a copy takes")
    }))

  test("gives the agent's key by the launch line, and leaves it nowhere else, in an image of deploy/docker", (user) =>
    Effect.gen(function*() {
      const key = "sk-SECRET-of-the-model"
      // An agent that says no more than whether it has the key.
      const made = docker("create", engine.image, "sh")
      const agent = `${user.root}/qwen`
      const fs = yield* FileSystem.FileSystem
      yield* fs.writeFileString(
        agent,
        `#!/bin/sh
case "$*" in *--version) echo 0.24.4; exit;; esac
read line
echo \${#OPENAI_API_KEY} >/var/tmp/length
sleep 100
`
      )
      yield* fs.chmod(agent, 0o755)
      docker("cp", agent, `${made}:/bin/qwen`)
      const base = docker("commit", made)
      docker("rm", made)
      yield* Effect.addFinalizer(() => Effect.sync(() => docker("rmi", "--force", base)))
      yield* fs.makeDirectory(`${user.root}/build`)
      yield* fs.copyFile(engine.bridge, `${user.root}/build/gangway-bridge`)
      const image = build(`${user.root}/build`, { BASE: base, PACKAGES: "", AGENTS: "", USER: "agent" })
      yield* Effect.addFinalizer(() => Effect.sync(() => docker("rmi", "--force", image)))
      assert.strictEqual(docker("inspect", "--format", "{{.Config.User}}", image), "agent")
      const program = ["--bridge-command", "/usr/local/bin/gangway-bridge"]
      const options = ["--agent", "qwen", "--sandbox", "docker", "--image", image, "--copy", ...program]
      const host = yield* startIt(user, ["run", "x", ...options], { env: { ...env(), OPENAI_API_KEY: key } })
      const exec = (script: string) => docker("exec", "--user", "root", containers(user)[0]!, "sh", "-c", script)
      const hasKey = until(() =>
        containers(user).length > 0 && exec("cat /var/tmp/length 2>/dev/null") === `${key.length}`
      )
      yield* Effect.raceFirst(hasKey, Effect.flatMap(host.ended, ({ stderr }) => Effect.die(stderr)))

      assert.notInclude(docker("inspect", containers(user)[0]!), key)
      const running = exec("for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done")
      assert.include(running, "gangway-bridge")
      assert.notInclude(running, key)
      // Where anything may have been written; the word is in two halves, so that the search isn't what it finds.
      const places = "/var /tmp /root /srv /etc /home /run"
      assert.strictEqual(exec(`grep -rl "sk-SEC""RET" ${places} 2>/dev/null`), "")
      assert.include(exec(`grep -rl '"pid"' ${places} 2>/dev/null`), listening)
      process.kill(host.pid, "SIGKILL")
      yield* host.ended
      docker("rm", "--force", containers(user)[0]!)
      const here = Bun.spawnSync(["grep", "-rl", key, user.root]).stdout.toString()
      assert.strictEqual(here, "")
    }))

  test("has in its image the agent that its bridge drives", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const described = Bun.spawnSync([engine.bridge, "agents"]).stdout.toString().trim().split("\n")
      const { install } = described.map((line) => JSON.parse(line)).find(({ agent }) => agent === "claude-code")
      const [, named] = /--global (\S+)$/.exec(install)!
      assert.include(yield* fs.readFileString(dockerfile), `ARG AGENTS="${named}"\n`)
      const file = dockerfile.replace("Dockerfile", "compose.yaml")
      const { services } = Bun.YAML.parse(yield* fs.readFileString(file)) as {
        readonly services: Readonly<Record<string, Readonly<Record<string, unknown>>>>
      }
      const { build, ports } = services["agents"]!
      assert.deepStrictEqual(ports, ["127.0.0.1::4321"])
      assert.deepStrictEqual(build, {
        // Beside it, the file is found from there.
        context: "../../dist/bridge",
        dockerfile: "../../deploy/docker/Dockerfile",
        args: { AGENTS: `\${GANGWAY_AGENTS:-${named}}` }
      })
    }))

  test("says what doesn't go together", (user) =>
    Effect.gen(function*() {
      const problem = Effect.fnUntraced(function*(...args: ReadonlyArray<string>) {
        const { exitCode, stderr } = yield* run(user, ...args)
        assert.strictEqual(exitCode, 2, stderr)
        return stderr
      })
      assert.include(yield* problem(...scripted("x", "--sandbox", "docker")), "takes an --image")
      assert.include(yield* problem(...scripted("x", "--image", "y")), "takes --sandbox docker")
      const first = yield* run(user, ...contained("hello", "--bridge", "b1"))
      assert.strictEqual(first.exitCode, 0, first.stderr)
      assert.include(
        yield* problem(...scripted("x", "--bridge", "b1", "--directory", user.root)),
        `bridge b1 has ${user.directory} in its container, and not ${user.root}`
      )
      assert.include(
        yield* problem(...scripted("x", "--bridge", "b1", "--sandbox", "docker", "--image", "other")),
        `bridge b1 runs in a container of ${engine.image} with ${user.directory}`
      )
      const nowhere = yield* runIt(user, contained("x", "--bridge", "b2"), {
        env: { ...env(), GANGWAY_BRIDGE_BUILDS: user.directory }
      })
      assert.strictEqual(nowhere.exitCode, 2, nowhere.stderr)
      assert.include(nowhere.stderr, "there's no build of gangway-bridge for linux-x64: ")
      const unreachable = yield* runIt(user, contained("x", "--bridge", "b3"), {
        env: { ...env(), DOCKER_HOST: "unix:///no/such/socket" }
      })
      assert.strictEqual(unreachable.exitCode, 4, unreachable.stderr)
      assert.include(unreachable.stderr, "Cannot connect to the Docker daemon")
    }))
})
