import { afterAll, assert, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { execFileSync } from "node:child_process"
import { DaytonaServer } from "../../../test/daytona/DaytonaServer.ts"
import { needed } from "../../../test/daytona/Processes.ts"
import { prompt, run as runIt, start as startIt, test, until, type User } from "./fixtures/Gangway.ts"

const server = new DaytonaServer()
afterAll(() => server.close())

const env = () => ({ DAYTONA_API_KEY: server.apiKey, DAYTONA_API_URL: server.apiUrl })

const program = new URL("../../bridge/src/main.ts", import.meta.url).pathname

const run = (user: User, ...args: ReadonlyArray<string>) => runIt(user, args, { env: env() })

// What runs in a loopback sandbox sees this machine's files, so the bridge is there already.
const inDaytona = (text: string, ...args: ReadonlyArray<string>) => [
  "run",
  text,
  "--agent",
  "scripted",
  "--permissions",
  "all",
  "--sandbox",
  "daytona",
  "--bridge",
  "b1",
  "--bridge-command",
  JSON.stringify([process.execPath, program]),
  ...args
]

const shell = (script: string) => ({ type: "tool", name: "Bash", command: ["sh", "-c", script] } as const)

const git = (user: User, ...args: ReadonlyArray<string>) =>
  execFileSync("git", ["-c", "user.name=u", "-c", "user.email=u@localhost", ...args], { cwd: user.directory })
    .toString()

const of = ({ directory }: User) =>
  [...server.sandboxes.values()].filter(({ labels }) => labels["dev.gangway.directory"] === directory)

describe("gangway with Daytona", needed, () => {
  test("runs a turn on a copy of the directory, and pulls what it has changed", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const at = (name: string) => `${user.directory}/${name}`
      const text = (name: string) => fs.readFileString(at(name))
      git(user, "init", "--quiet")
      const lines = Array.from({ length: 40 }, (_, i) => `line ${i}\n`)
      yield* fs.writeFileString(at("text"), lines.join(""))
      yield* fs.writeFile(at("binary"), new Uint8Array([0, 1, 2, 255, 10]))
      yield* fs.writeFileString(at("old name é \"x\\y"), "moved, with enough text to be known again\n".repeat(4))
      yield* fs.writeFileString(at("gone"), "gone\n")
      yield* fs.makeDirectory(at("deep/er"), { recursive: true })
      yield* fs.writeFileString(at("deep/er/only"), "x\n")
      yield* fs.writeFileString(at("run.sh"), "#!/bin/sh\n")
      yield* fs.writeFileString(at(".gitignore"), "secret\nbuilt/\n")
      yield* fs.writeFileString(at("secret"), "not to be copied\n")
      git(user, "add", ".")
      git(user, "commit", "--quiet", "-m", "begun")
      yield* fs.writeFileString(at("untracked"), "new here\n")
      const script = `set -e
[ ! -e secret ] && cat untracked
sed -i 's/line 1$/line one/' text
printf '\\000\\003\\377' > binary
mv 'old name é "x\\y' "$(printf 'a/b' | tr -d /)-$(printf 'n%.0s' $(seq 120))"
rm -r gone deep
chmod +x run.sh
ln -s text link
mkdir built node && echo x > built/x && echo node > .ignored
echo '.ignored' >> .gitignore
echo new > "node/new file"`
      const ran = yield* run(user, ...inDaytona(prompt(shell(script)), "--session", "s1"))
      assert.strictEqual(ran.exitCode, 0, ran.stderr)
      assert.include(ran.stderr, "gangway: creating a Daytona sandbox\n")
      assert.include(ran.stdout, "new here")
      const [sandbox, ...others] = of(user)
      assert.isEmpty(others)
      assert.notInclude(sandbox!.toolbox.traces, server.apiKey)
      assert.include(yield* text("text"), "line 1\n")

      // What has changed here meanwhile, elsewhere in the file, stays.
      const patch = yield* run(user, "diff")
      assert.strictEqual(patch.exitCode, 0, patch.stderr)
      for (const line of ["+line one", "GIT binary patch", "rename from", "deleted file", "new mode 100755", "+new"]) {
        assert.include(patch.stdout, line)
      }
      assert.notInclude(patch.stdout, "built/x")
      yield* fs.writeFileString(at("text"), lines.join("").replace("line 30\n", "line thirty\n"))
      const pulled = yield* run(user, "pull")
      assert.strictEqual(pulled.exitCode, 0, pulled.stderr)
      assert.include(pulled.stdout, "new  node/new file\n")
      assert.include(pulled.stdout, "deleted  deep/er/only\n")
      const merged = yield* text("text")
      assert.include(merged, "line one\n")
      assert.include(merged, "line thirty\n")
      assert.deepStrictEqual([...yield* fs.readFile(at("binary"))], [0, 3, 255])
      assert.strictEqual(Number((yield* fs.stat(at("run.sh"))).mode) & 0o111, 0o111)
      assert.strictEqual(yield* fs.readLink(at("link")), "text")
      assert.include(yield* text(`ab-${"n".repeat(120)}`), "known again")
      for (const name of ["gone", "deep", "built", ".ignored", "old name é \"x\\y"]) {
        assert.isFalse(yield* fs.exists(at(name)), name)
      }
      assert.strictEqual(yield* text("secret"), "not to be copied\n")

      // From then on it's what comes next that counts, and what doesn't go together is refused whole.
      assert.strictEqual((yield* run(user, "diff")).stdout, "")
      assert.include((yield* run(user, "pull")).stderr, "there's nothing to pull")
      const next = prompt(shell("echo theirs > untracked; echo more > more"))
      const again = yield* run(user, ...inDaytona(next, "--session", "s1"))
      assert.strictEqual(again.exitCode, 0, again.stderr)
      assert.notInclude(again.stderr, "creating")
      yield* fs.writeFileString(at("untracked"), "ours\n")
      const refused = yield* run(user, "pull")
      assert.strictEqual(refused.exitCode, 2, refused.stderr)
      assert.include(refused.stderr, "nothing is pulled: untracked has changed on both sides; ")
      assert.isFalse(yield* fs.exists(at("more")))
      yield* fs.writeFileString(at("untracked"), "new here\n")
      assert.strictEqual((yield* run(user, "pull")).exitCode, 0)
      assert.strictEqual(yield* text("untracked"), "theirs\n")

      // The patch is one that Git takes.
      git(user, "checkout", "--quiet", "-b", "by-hand", "HEAD")
      git(user, "stash", "--include-untracked", "--quiet")
      yield* fs.writeFileString(`${user.root}/patch`, patch.stdout)
      git(user, "apply", "--check", `${user.root}/patch`)
    }))

  test("copies submodules, links and names of any kind, and what Git doesn't know of them stays here", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const at = (name: string) => `${user.directory}/${name}`
      const inner = { directory: `${user.root}/inner` } as User
      yield* fs.makeDirectory(inner.directory)
      yield* fs.writeFileString(`${inner.directory}/of the module`, "one\n")
      git(inner, "init", "--quiet")
      git(inner, "add", ".")
      git(inner, "commit", "--quiet", "-m", "begun")
      git(user, "init", "--quiet")
      git(user, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner.directory, "a module")
      git(user, "clone", "--quiet", inner.directory, "not added")
      const names = ["-dash", " space ", "new\nline", "tab\t", "*", "[a]$x", "ünï🙂", "e\u0301", "'q' \"d\" \\b", "#"]
      for (const name of names) yield* fs.writeFileString(at(name), `of ${name}`)
      yield* fs.writeFileString(at("empty"), "")
      yield* fs.makeDirectory(at("here only"))
      yield* fs.symlink("nowhere", at("dangling"))
      yield* fs.symlink("a module", at("to a directory"))
      yield* fs.symlink("/etc/hostname", at("absolute"))
      git(user, "add", "a module", ".gitmodules")
      git(user, "commit", "--quiet", "-m", "begun")

      // Two changes of each file; and what's neither file nor link.
      const script = `set -e
ls -A >listed
for name in ${
        names.map((name) => `'./${name.replaceAll("'", "'\\''")}'`).join(" ")
      }; do printf ' changed' >>"$name"; done
echo two >>'a module/of the module'
echo two >>'not added/of the module'
ln -sfn elsewhere dangling
rm 'to a directory'; mkdir 'to a directory'; echo x >'to a directory/file'
mkfifo pipe; mkdir -p nothing/in/it
rm empty; mkdir empty; echo x >empty/file`
      const ran = yield* run(user, ...inDaytona(prompt(shell(script)), "--session", "s1"))
      assert.strictEqual(ran.exitCode, 0, ran.stderr)
      const pulled = yield* run(user, "pull")
      assert.strictEqual(pulled.exitCode, 0, pulled.stderr)
      for (const name of names) assert.strictEqual(yield* fs.readFileString(at(name)), `of ${name} changed`)
      for (const name of ["a module", "not added"]) {
        assert.strictEqual(yield* fs.readFileString(at(`${name}/of the module`)), "one\ntwo\n")
        // It's a repository as before.
        assert.include(git({ directory: at(name) } as User, "status", "--short"), "of the module")
      }
      assert.strictEqual(yield* fs.readLink(at("dangling")), "elsewhere")
      assert.strictEqual(yield* fs.readLink(at("absolute")), "/etc/hostname")
      for (const name of ["to a directory", "empty"]) {
        assert.strictEqual(yield* fs.readFileString(at(`${name}/file`)), "x\n")
      }
      const listed = yield* fs.readFileString(at("listed"))
      for (const name of ["here only", ".gitmodules"]) {
        assert.strictEqual(listed.split("\n").includes(name), name === ".gitmodules")
        assert.isTrue(yield* fs.exists(at(name)))
      }
      for (const name of ["pipe", "nothing"]) assert.isFalse(yield* fs.exists(at(name)))
      assert.include((yield* run(user, "pull")).stderr, "there's nothing to pull")
    }))

  test("finds its sandbox again to attach and to abort, also after it was stopped, and prunes it", (user) =>
    Effect.gen(function*() {
      const host = yield* startIt(
        user,
        inDaytona(
          prompt(shell("until [ -e go ]; do sleep 0.1; done; echo gone on"), { type: "text", text: "Done." }),
          "--session",
          "s1"
        ),
        { env: env() }
      )
      yield* until(() => host.stdout().includes("Bash"))
      process.kill(host.pid, "SIGKILL")
      yield* host.ended
      const [sandbox] = of(user)
      const copies = `${sandbox!.toolbox.home}/.gangway/copies`
      yield* shellIn(`cd ${copies}/*/project && touch go`)
      const rest = yield* run(user, "attach", "--session", "s1", "--once", "--json", ...again)
      assert.strictEqual(rest.exitCode, 0, rest.stderr)
      assert.include(rest.stdout, "gone on")
      assert.match(rest.stdout, /"type":"finished".*\n$/)

      const waiting = yield* startIt(
        user,
        inDaytona(prompt(shell("echo $$; sleep 1000")), "--session", "s2"),
        { env: env() }
      )
      yield* until(() => waiting.stdout().includes("Bash"))
      const aborted = yield* run(user, "abort", "--session", "s2", ...again)
      assert.strictEqual(aborted.exitCode, 0, aborted.stderr)
      assert.strictEqual((yield* waiting.ended).exitCode, 3)

      yield* Effect.promise(() => server.stop(sandbox!))
      const woken = yield* run(user, ...inDaytona(prompt(shell("ls")), "--session", "s1"))
      assert.strictEqual(woken.exitCode, 0, woken.stderr)
      assert.include(woken.stdout, "go")
      const listed = yield* run(user, "sandboxes", "list")
      assert.include(listed.stdout, `${sandbox!.id}  Daytona  started  bridge b1 in ${user.directory}\n`)
      // Its bridge is still there.
      assert.notInclude((yield* run(user, "sandboxes", "prune")).stdout, sandbox!.id)
      yield* Effect.promise(() => server.stop(sandbox!))
      const stopped = yield* run(user, "ps")
      assert.match(stopped.stdout, /^○ b1 {2}its sandbox is stopped, in daytona\n {2}s1 +not known +\S+/)
      assert.strictEqual(sandbox!.state, "stopped", "nothing is woken to look at")
      const pruned = yield* run(user, "sandboxes", "prune")
      assert.include(pruned.stdout, `removed ${sandbox!.id}`)
      assert.isEmpty(of(user))
      assert.include((yield* run(user, "diff")).stderr, "the sandbox of bridge b1 is gone")
      assert.strictEqual((yield* run(user, "prune", "--yes")).stdout, "b1  its sandbox is gone, 0 sessions\n")
      assert.include((yield* run(user, "ps")).stderr, "no bridge is known yet")
    }))

  test("uses a sandbox that exists, and leaves it", (user) =>
    Effect.gen(function*() {
      const made = yield* run(user, ...inDaytona(prompt({ type: "text", text: "One." })))
      assert.strictEqual(made.exitCode, 0, made.stderr)
      const [sandbox] = of(user)
      const [text, ...args] = inDaytona(prompt({ type: "text", text: "Two." }), "--sandbox-id", sandbox!.id)
      const ran = yield* run(user, text!, ...args.map((word) => word === "b1" ? "b2" : word))
      assert.strictEqual(ran.exitCode, 0, ran.stderr)
      assert.include(ran.stdout, "Two.")
      assert.lengthOf(of(user), 1)
    }))

  test("says what it takes", (user) =>
    Effect.gen(function*() {
      const keyless = yield* runIt(user, inDaytona("x"))
      assert.strictEqual(keyless.exitCode, 2, keyless.stderr)
      assert.include(keyless.stderr, "takes its key in DAYTONA_API_KEY")
      const both = yield* run(user, ...inDaytona("x", "--image", "a", "--snapshot", "b"))
      assert.include(both.stderr, "exclude each other")
      const lost = yield* run(user, ...inDaytona("x", "--sandbox-id", "nowhere"))
      assert.strictEqual(lost.exitCode, 4, lost.stderr)
      assert.include(lost.stderr, "nowhere not found")
      assert.include((yield* run(user, "diff")).stderr, "no bridge is known yet")
      const denied = yield* runIt(user, inDaytona("x"), { env: { ...env(), DAYTONA_API_KEY: "wrong" } })
      assert.strictEqual(denied.exitCode, 4, denied.stderr)
      assert.include(denied.stderr, "Invalid credentials")

      // Built, without the package anywhere.
      const main = new URL("../src/main.ts", import.meta.url).pathname
      const built = `${user.root}/gangway.js`
      const options = ["--target", "bun", "--external", "@daytona/sdk", "--outfile", built]
      execFileSync(process.execPath, ["build", main, ...options], { stdio: "ignore" })
      const { exitCode, stderr } = Bun.spawnSync([process.execPath, "--no-install", built, ...inDaytona("x")], {
        cwd: user.directory,
        env: { ...user.env, ...env() }
      })
      assert.strictEqual(exitCode, 2)
      assert.include(stderr.toString(), "takes the package @daytona/sdk beside gangway: bun add @daytona/sdk@0.216.0\n")
    }))
})

const again = ["--bridge-command", JSON.stringify([process.execPath, program])]

const shellIn = (script: string) => Effect.sync(() => execFileSync("sh", ["-c", script]))
