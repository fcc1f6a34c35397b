/**
 * Servers that only this machine reaches, for drivers, with Bun's own HTTP server: its end can cut what is still open.
 *
 * @since 0.1.0
 */
import { LoopbackServer } from "@gangway/drivers/LoopbackServer"
import { Bridge } from "@gangway/server"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"

/** @category layers @since 0.1.0 */
export const layer: Layer.Layer<LoopbackServer> = Layer.succeed(LoopbackServer, {
  serve: (answer) =>
    Effect.acquireRelease(
      Effect.try({
        try: () =>
          Bun.serve({
            hostname: "127.0.0.1",
            port: 0,
            // A host may take its time.
            idleTimeout: 0,
            // Bun would tell it on standard error.
            error: () => new Response(null, { status: 500 }),
            fetch: async (request) => {
              const response = await Effect.runPromise(
                answer({
                  method: request.method,
                  authorization: request.headers.get("authorization") ?? undefined,
                  body: await request.text()
                }),
                { signal: request.signal }
              )
              const { body, contentType, status } = response
              return new Response(
                typeof body === "object" ? Stream.toReadableStream(Stream.encodeText(body)) : body ?? null,
                { status, headers: contentType === undefined ? {} : { "content-type": contentType } }
              )
            }
          }),
        catch: (error) =>
          new Bridge.DriverError({ driver: "loopback", kind: "start", problem: `can't listen on 127.0.0.1: ${error}` })
      }),
      (server) => Effect.promise(() => server.stop(true))
    ).pipe(Effect.map(({ port }) => `http://127.0.0.1:${port}`))
})
