/**
 * What an agent may ask of its client besides permission: files and commands, from the sandbox that both are in.
 *
 * It's for agents that have no access of their own. What they may do to files and with commands is what they could do
 * anyway: they run as the same user.
 */
import type { AgentProcess, AgentProcesses } from "@gangway/server/Supervisor"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { RpcCode, RpcError } from "./acpConnection.ts"
import { CreateTerminal, ReadTextFile, TerminalRequest, WriteTextFile } from "./acpMessages.ts"
import { realPath } from "./acpPermission.ts"

/** The longest file that is read for an agent, in bytes. */
const maxFileBytes = 16 * 1024 * 1024

/** What is kept of a terminal's output, in characters; the beginning goes first. */
const maxOutput = 1024 * 1024

/** The most terminals of a session; the oldest that the agent has let go is forgotten first. */
const maxTerminals = 32

interface Terminal {
  readonly process: AgentProcess
  readonly limit: number
  output: string
  truncated: boolean
  released: boolean
  /** How it ended, once all its output is there. */
  readonly ended: Deferred.Deferred<Exited>
  exit: Exited | undefined
}

interface Exited {
  readonly code: number | undefined
  readonly signal: string | undefined
}

export interface Options {
  readonly directory: string
  readonly processes: AgentProcesses
}

/** Answers the requests of one session; the commands' output is read by fibers of the scope. */
export const make = Effect.fnUntraced(function*({ directory, processes }: Options) {
  const context = yield* Effect.context<FileSystem.FileSystem | Path.Path | Scope.Scope>()
  const terminals = new Map<string, Terminal>()
  let made = 0
  /** How many are about to be there. */
  let starting = 0

  const read = Effect.fnUntraced(function*({ limit, line, path }: typeof ReadTextFile.Type) {
    const fs = yield* FileSystem.FileSystem
    const file = yield* checked(path)
    const { size } = yield* regular(file)
    if (size > maxFileBytes) return yield* refused(`${path} is longer than ${maxFileBytes} bytes`)
    const content = yield* fs.readFileString(file)
    if ((line ?? undefined) === undefined && (limit ?? undefined) === undefined) return { content }
    const from = Math.max(0, (line ?? 1) - 1)
    const lines = content.split("\n")
    return { content: lines.slice(from, from + (limit ?? lines.length)).join("\n") }
  })

  const write = Effect.fnUntraced(function*({ content, path }: typeof WriteTextFile.Type) {
    const fs = yield* FileSystem.FileSystem
    const file = yield* checked(path)
    const { dirname } = yield* Path.Path
    if (yield* fs.exists(file)) yield* regular(file)
    yield* fs.makeDirectory(dirname(file), { recursive: true })
    yield* fs.writeFileString(file, content)
    return {}
  })

  const create = Effect.fnUntraced(function*(asked: typeof CreateTerminal.Type) {
    if (terminals.size + starting >= maxTerminals) {
      const [oldest] = [...terminals].find(([, { released }]) => released) ?? []
      if (oldest === undefined) return yield* refused(`there are ${maxTerminals} terminals: release some`)
      terminals.delete(oldest)
    }
    const { args, command } = asked
    starting++
    const process = yield* Effect.ensuring(
      processes.spawn({
        command: "sh",
        // Without arguments it's a line for the shell. Either way both outputs are one, as in a terminal.
        args: args === undefined || args === null || args.length === 0
          ? ["-c", `exec 2>&1\n${command}`]
          : ["-c", "exec \"$0\" \"$@\" 2>&1", command, ...args],
        cwd: asked.cwd ?? directory,
        env: Object.fromEntries((asked.env ?? []).map(({ name, value }) => [name, value]))
      }),
      Effect.sync(() => void starting--)
    )
    const terminal: Terminal = {
      process,
      limit: Math.min(Math.max(asked.outputByteLimit ?? maxOutput, 0), maxOutput),
      output: "",
      truncated: false,
      released: false,
      ended: Deferred.makeUnsafe(),
      exit: undefined
    }
    const terminalId = `terminal-${++made}`
    terminals.set(terminalId, terminal)
    yield* process.lines.pipe(
      Stream.runForEach((line) =>
        Effect.sync(() => {
          terminal.output += `${line}\n`
          terminal.truncated ||= terminal.output.length > terminal.limit
          // Cutting costs as much as there is, so not with each line.
          if (terminal.output.length > 2 * terminal.limit) terminal.output = outputOf(terminal)
        })
      ),
      Effect.ignore,
      Effect.andThen(process.exit),
      Effect.flatMap((exit) => {
        terminal.exit = exit
        return Deferred.succeed(terminal.ended, exit)
      }),
      Effect.forkScoped
    )
    return { terminalId }
  })

  const terminalOf = ({ terminalId }: typeof TerminalRequest.Type) => {
    const terminal = terminals.get(terminalId)
    return terminal === undefined || terminal.released
      ? Effect.fail(new RpcError({ code: RpcCode.notFound, message: `there is no terminal ${terminalId}` }))
      : Effect.succeed(terminal)
  }

  const statusOf = ({ code, signal }: Exited) => ({
    exitCode: code ?? null,
    signal: signal ?? null
  })

  const on = <S extends Schema.Codec<unknown, unknown>, A extends object, E>(
    schema: S,
    answer: (params: S["Type"]) => Effect.Effect<A, E, FileSystem.FileSystem | Path.Path | Scope.Scope>
  ) =>
  (params: Schema.Json): Effect.Effect<Schema.Json, RpcError> =>
    Schema.decodeEffect(schema)(params).pipe(
      Effect.mapError(({ message }) => new RpcError({ code: RpcCode.invalidParams, message })),
      Effect.flatMap(answer),
      Effect.mapError((error) =>
        error instanceof RpcError
          ? error
          : new RpcError({ code: RpcCode.internal, message: error instanceof Error ? error.message : String(error) })
      ),
      Effect.provideContext(context)
    ) as Effect.Effect<Schema.Json, RpcError>

  const methods: Readonly<Record<string, (params: Schema.Json) => Effect.Effect<Schema.Json, RpcError>>> = {
    "fs/read_text_file": on(ReadTextFile, read),
    "fs/write_text_file": on(WriteTextFile, write),
    "terminal/create": on(CreateTerminal, create),
    "terminal/output": on(TerminalRequest, (asked) =>
      Effect.map(terminalOf(asked), (terminal) => ({
        output: outputOf(terminal),
        truncated: terminal.truncated,
        ...(terminal.exit === undefined ? {} : { exitStatus: statusOf(terminal.exit) })
      }))),
    "terminal/wait_for_exit": on(
      TerminalRequest,
      (asked) => Effect.flatMap(terminalOf(asked), ({ ended }) => Effect.map(Deferred.await(ended), statusOf))
    ),
    "terminal/kill": on(
      TerminalRequest,
      (asked) => Effect.flatMap(terminalOf(asked), ({ process }) => Effect.as(process.end, {}))
    ),
    "terminal/release": on(TerminalRequest, (asked) =>
      Effect.flatMap(terminalOf(asked), (terminal) => {
        terminal.released = true
        return Effect.as(terminal.process.end, {})
      }))
  }

  return {
    /** Absent where the method isn't one of a client's files or terminals. */
    answer: (method: string): ((params: Schema.Json) => Effect.Effect<Schema.Json, RpcError>) | undefined =>
      methods[method],
    /** What a terminal has printed, for the result of the call that it's part of. */
    outputOf: (terminal: string): string | undefined => {
      const found = terminals.get(terminal)
      return found === undefined ? undefined : outputOf(found)
    }
  }
})

const outputOf = ({ limit, output }: Terminal): string => output.slice(Math.max(0, output.length - limit))

const refused = (message: string) => new RpcError({ code: RpcCode.invalidParams, message })

/** A pipe or a device would be waited for, by a thread that all of the bridge's files need. */
const regular = Effect.fnUntraced(function*(file: string) {
  const fs = yield* FileSystem.FileSystem
  const found = yield* fs.stat(file)
  return found.type === "File" ? found : yield* refused(`${file} is no file`)
})

// In these the bridge's own process would be found in place of the agent's.
const system = /^\/(?:proc|sys|dev)(?:\/|$)/

const checked = Effect.fnUntraced(function*(file: string) {
  const path = yield* Path.Path
  if (!path.isAbsolute(file)) return yield* refused(`${file} is no absolute path`)
  const real = yield* realPath(path.resolve(file))
  return system.test(real) ? yield* refused(`${file} is the system's`) : real
})
