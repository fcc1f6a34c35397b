import { afterAll, assert, describe, it } from "@effect/vitest"
import { DaytonaSandbox, Sandbox } from "@gangway/sandbox"
import { Effect, Exit, Redacted, Schema } from "effect"
import { DaytonaServer } from "../../../test/daytona/DaytonaServer.ts"
import { needed } from "../../../test/daytona/Processes.ts"

const server = new DaytonaServer()
afterAll(() => server.close())

const account = { apiKey: Redacted.make(server.apiKey), apiUrl: server.apiUrl }

const page = "<html><body>Bad Gateway</body></html>"
const html = { "Content-Type": "text/html" }
const json = { "Content-Type": "application/json" }

// What comes instead of an answer, and what it is to a launcher.
const faults: Readonly<Record<string, () => Response>> = {
  "too many requests": () => Response.json({ statusCode: 429, message: "ThrottlerException" }, { status: 429 }),
  "a failure": () => Response.json({ statusCode: 500, message: "Internal server error" }, { status: 500 }),
  "a proxy's page": () => new Response(page, { status: 502, headers: html }),
  "an overloaded proxy": () => new Response("", { status: 503 }),
  "a page that says it's not there": () => new Response(page, { status: 404, headers: html }),
  "a page that says it's right": () => new Response(page, { headers: html }),
  "half a JSON text": () => new Response(`{"exitCode":0,"resul`, { headers: json }),
  "nothing": () => new Response("", { headers: json }),
  "another JSON text": () => new Response(`{"error":"later"}`, { headers: json }),
  "null": () => new Response("null", { headers: json })
}

const lastAnswers = [
  ["start", /\/exec$/],
  ["endpoint", /\/preview-url$/],
  ["use", /\/preview-url$/],
  ["readFile", /\/bulk-download$/],
  ["writeFile", /\/bulk-upload$/],
  ["exitCode", /\/command\/[^/]+$/]
] as const

const operations = (
  sandbox: Sandbox.Sandbox["Service"],
  started: Sandbox.Started,
  home: string
): Readonly<Record<string, Effect.Effect<unknown, Sandbox.SandboxError>>> => ({
  start: sandbox.start({ command: ["true"], stdinLine: Redacted.make("a-secret-line"), log: `${home}/log` }),
  run: sandbox.run({ command: ["true"], timeout: "5 seconds" }),
  readFile: sandbox.readFile(`${home}/file`),
  writeFile: sandbox.writeFile(`${home}/file`, new Uint8Array([2])),
  endpoint: sandbox.endpoint(4321),
  use: sandbox.use!.endpoint,
  keepAlive: sandbox.keepAlive!,
  wake: sandbox.wake,
  exitCode: started.exitCode,
  attach: Effect.scoped(DaytonaSandbox.attach({ ...account, sandbox: sandbox.id })),
  list: DaytonaSandbox.list(account)
})

describe("a Daytona that answers something else", needed, () => {
  it.live("is an error that says it may work later, and never a defect", () =>
    Effect.gen(function*() {
      const sandbox = yield* DaytonaSandbox.make(account)
      const { home } = server.get(sandbox.id).toolbox
      yield* sandbox.writeFile(`${home}/file`, new Uint8Array([1]))
      const started = yield* sandbox.start({
        command: ["sleep", "100"],
        stdinLine: Redacted.make("x"),
        log: `${home}/log`
      })
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          server.interfere = undefined
        })
      )
      const problems: Array<string> = []
      const tried = Effect.fnUntraced(function*(name: string, fault: string) {
        const operation = operations(sandbox, started, home)[name]!
        const exit = yield* Effect.exit(Effect.timeout(operation, "15 seconds"))
        if (Exit.isSuccess(exit)) {
          // What answers nothing has nothing to be told wrong.
          if (name !== "keepAlive") problems.push(`${name} worked with ${fault}: ${Bun.inspect(exit.value)}`)
          return
        }
        const [reason] = exit.cause.reasons
        const error = reason?._tag === "Fail" ? reason.error : undefined
        if (!Schema.is(Sandbox.SandboxError)(error)) problems.push(`${name} with ${fault}: ${Bun.inspect(reason)}`)
        else if (error.reason._tag !== "Transient") problems.push(`${name} with ${fault}: ${error.reason._tag}`)
        else assert.notInclude(Bun.inspect(error, { depth: 20 }), "a-secret-line")
      })
      for (const [fault, response] of Object.entries(faults)) {
        server.interfere = response
        yield* Effect.forEach(Object.keys(operations(sandbox, started, home)), (name) => tried(name, fault), {
          concurrency: "unbounded"
        })
        // Or only the last of an operation's answers is another.
        for (const [name, path] of lastAnswers) {
          server.interfere = (_, asked) => path.test(asked) ? response() : undefined
          yield* tried(name, `${fault} for ${path}`)
        }
      }
      server.interfere = undefined
      assert.deepStrictEqual(problems, [])
      // And then it does.
      for (const operation of Object.values(operations(sandbox, started, home))) yield* operation
    }).pipe(Effect.scoped), 120_000)
})
