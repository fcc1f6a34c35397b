import { afterAll } from "@effect/vitest"
import { DaytonaSandbox, Sandbox } from "@gangway/sandbox"
import { Effect, Layer, Redacted } from "effect"
import { sandboxConformance } from "../../../test/conformance/sandbox.ts"
import { variable } from "../../../test/daytona/attached.ts"
import { DaytonaServer } from "../../../test/daytona/DaytonaServer.ts"
import { answersAreAsDocumented } from "../../../test/daytona/OpenApi.ts"
import { unavailable } from "../../../test/daytona/Processes.ts"

const server = new DaytonaServer()
afterAll(() => server.close())

const { apiUrl } = server
const apiKey = Redacted.make(server.apiKey)

sandboxConformance({
  name: "DaytonaSandbox",
  skipped: unavailable,
  module: new URL("../../../test/daytona/attached.ts", import.meta.url).pathname,
  layer: Layer.effect(
    Sandbox.Sandbox,
    Effect.tap(
      DaytonaSandbox.make({ apiKey, apiUrl }),
      ({ id }) =>
        Effect.sync(() => {
          // For the hosts that the suite starts.
          process.env[variable] = JSON.stringify({ apiKey: server.apiKey, apiUrl, sandbox: id })
        })
    )
  ),
  server: ({ hostname, port }) => [
    process.execPath,
    "-e",
    `Bun.serve({ hostname: "${hostname}", port: ${port}, fetch: () => new Response("here") }); setTimeout(() => process.exit(), 5000)`
  ],
  stop: ({ id }) => Effect.promise(() => server.stop(server.get(id))),
  gone: Effect.tap(
    DaytonaSandbox.make({ apiKey, apiUrl }),
    ({ id }) => Effect.promise(() => server.remove(server.get(id)))
  )
})

answersAreAsDocumented(server)
