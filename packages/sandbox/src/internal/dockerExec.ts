/**
 * Scripts that `docker exec` runs in a container, and the lines by which they tell how it goes.
 *
 * They write these lines to their standard error, which the program that they run doesn't have: every other line is
 * said by `docker` or its engine, and no exit code of theirs is taken for the program's.
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { ChildProcessHandle } from "effect/unstable/process/ChildProcessSpawner"
import * as Sandbox from "../Sandbox.ts"
import * as Docker from "./dockerClient.ts"

const prelude = `exec 3>&2 2>/dev/null
fail() { printf 'problem %s\\n' "$1" >&3; exit; }
echo "pid $$" >&3
d=$1; shift`

// What an image's commands complain of is understood in no other language.
const inEnglish = "LC_ALL=C; export LC_ALL"

const enter = `if [ -n "$d" ]; then
  [ -e "$d" ] || fail "$d: No such file or directory"
  [ -d "$d" ] || fail "$d: Not a directory"
  cd -- "$d" || fail "$d: Permission denied"
fi`

/** Arguments: directory, program and its arguments. */
export const runScript = `${prelude}
${enter}
"$@" 3>&-
echo "exit $?" >&3`

/**
 * Arguments: directory, log, program and its arguments. `cat` hands the line on and tells when it has: only then may
 * the client go, for that ends its input.
 */
export const startScript = `${prelude}; l=$1; shift
e=$( (${inEnglish}; umask 077 && mkdir -p -- "\${l%/*}/" && : >>"$l") 2>&1) || fail "$e"
${enter}
{ cat; echo read >&3; } | { "$@" 3>&-; echo "exit $?" >&3; } >>"$l" 2>&1`

/** Arguments: a directory that isn't asked for, and the process whose group ends. Each script leads one. */
export const killScript = `${prelude}
kill -s KILL -- "-$1"
echo "exit $?" >&3`

/** Arguments: a directory that isn't asked for, and the file. It ends with 1 where there's none. */
export const readScript = `${prelude}; ${inEnglish}; exec 4>&1
e=$(cat -- "$1" 2>&1 >&4) && { echo "exit 0" >&3; exit; }
case $e in *"No such file or directory") echo "exit 1" >&3 ;; *) fail "$e" ;; esac`

/**
 * Arguments: a directory that isn't asked for, the file, its mode, its size, and what its new content is called until
 * it's whole. A client that's gone ends its input early.
 */
export const writeScript = `${prelude}; ${inEnglish}; t=$1.$4
[ ! -d "$1" ] || fail "$1: Is a directory"
e=$( { mkdir -p -- "\${1%/*}/" && cat >"$t" && chmod "$2" "$t"; } 2>&1) || { rm -f -- "$t"; fail "$e"; }
[ "$(wc -c <"$t")" -eq "$3" ] || { rm -f -- "$t"; fail "$1: cut off"; }
e=$(mv -f -- "$t" "$1" 2>&1) || { rm -f -- "$t"; fail "$e"; }
echo "exit 0" >&3`

export interface ExecOptions {
  readonly script: string
  readonly cwd?: string | undefined
  readonly args: ReadonlyArray<string>
  readonly env?: Readonly<Record<string, string>> | undefined
  readonly stdin: "pipe" | "ignore"
  /** How many bytes of its output are kept. */
  readonly keep: number
}

/** A script that runs in the container. */
export interface Running {
  readonly handle: ChildProcessHandle
  /** The process in the container that leads it, once it's there, or why there's none. */
  readonly pid: Effect.Effect<string, Sandbox.SandboxError>
  /** Waits until the program has all of its input, or has ended. */
  readonly read: Effect.Effect<void, Sandbox.SandboxError>
  /** Waits for its end. It fails where that isn't known, or where the script did nothing. */
  readonly ended: Effect.Effect<{ readonly exitCode: number; readonly stdout: Uint8Array }, Sandbox.SandboxError>
}

const maxLines = 20

const cutOff = "its container was stopped, or the connection to the engine lost, before it ended"

/** Runs a script with `docker exec`, for as long as the scope. `target` names the container, and who runs it. */
export const exec = (
  client: Docker.Client,
  operation: Docker.Operation,
  target: ReadonlyArray<string>,
  options: ExecOptions
): Effect.Effect<Running, Sandbox.SandboxError, Scope.Scope> =>
  Effect.gen(function*() {
    const handle = yield* client.spawn(operation, [
      "exec",
      ...(options.stdin === "pipe" ? ["--interactive"] : []),
      ...Object.entries(options.env ?? {}).flatMap(([name, value]) => ["--env", `${name}=${value}`]),
      ...target,
      "sh",
      "-c",
      options.script,
      "sh",
      options.cwd ?? "",
      ...options.args
    ], options.stdin)

    const pid = yield* Deferred.make<string, Sandbox.SandboxError>()
    const read = yield* Deferred.make<void, Sandbox.SandboxError>()
    const said: Array<string> = []
    let exitCode: number | undefined
    let problem: string | undefined

    const onLine = (line: string) =>
      Effect.suspend((): Effect.Effect<unknown> => {
        const [, word, rest = ""] = /^(pid|read|exit|problem)(?: (.*))?$/.exec(line) ?? []
        switch (word) {
          case "pid":
            return Deferred.succeed(pid, rest)
          case "read":
            return Deferred.succeed(read, undefined)
          case "exit":
            exitCode = Number(rest)
            return Deferred.succeed(read, undefined)
          case "problem":
            problem = rest
            return Effect.void
          default:
            if (said.length < maxLines) said.push(line.slice(0, 1000))
            return Effect.void
        }
      })

    const output = yield* Effect.forkScoped(collect(handle.stdout, options.keep))
    const ending = yield* handle.stderr.pipe(
      Stream.decodeText,
      Stream.splitLines,
      Stream.runForEach(onLine),
      Effect.ignore,
      Effect.andThen(Fiber.join(output)),
      Effect.flatMap((stdout) => {
        if (problem !== undefined) return Effect.fail(Docker.fromFile(operation, problem))
        if (exitCode !== undefined) return Effect.succeed({ exitCode, stdout })
        if (said.length === 0 && Deferred.isDoneUnsafe(pid)) {
          return Effect.fail(Docker.error(operation, new Sandbox.Transient({ problem: cutOff })))
        }
        // Some engines say on standard output that there's nothing to run.
        const text = Deferred.isDoneUnsafe(pid) ? "" : new TextDecoder().decode(stdout.subarray(0, 4096))
        return Effect.fail(Docker.fromMessage(operation, `${said.join("\n")}\n${text}`))
      }),
      Effect.onExit((exit) =>
        Effect.andThen(Deferred.done(pid, Exit.map(exit, () => "")), Deferred.done(read, Exit.asVoid(exit)))
      ),
      Effect.forkScoped
    )
    return {
      handle,
      pid: Docker.patiently(operation)(Deferred.await(pid)),
      read: Deferred.await(read),
      ended: Fiber.join(ending)
    }
  })

/** The first bytes of what is read to its end. */
const collect = <E, R>(bytes: Stream.Stream<Uint8Array, E, R>, keep: number) =>
  Effect.suspend(() => {
    const chunks: Array<Uint8Array> = []
    let size = 0
    return bytes.pipe(
      Stream.runForEach((chunk) =>
        Effect.sync(() => {
          const kept = chunk.subarray(0, keep - size)
          if (kept.length > 0) chunks.push(kept)
          size += kept.length
        })
      ),
      Effect.ignore,
      Effect.map(() => {
        const all = new Uint8Array(size)
        let offset = 0
        for (const chunk of chunks) {
          all.set(chunk, offset)
          offset += chunk.length
        }
        return all
      })
    )
  })
