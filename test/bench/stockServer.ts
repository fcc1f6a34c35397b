/**
 * A bridge's procedures, served by Effect's own RPC server and nothing else: no log, no lock, no driver.
 *
 *   bun test/bench/stockServer.ts <file>     writes its port to the file once it listens
 */
import * as BunHttpServer from "@effect/platform-bun/BunHttpServer"
import * as BunRuntime from "@effect/platform-bun/BunRuntime"
import { Rpcs } from "@gangway/protocol/Rpcs"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as HttpRouter from "effect/unstable/http/HttpRouter"
import * as HttpServer from "effect/unstable/http/HttpServer"
import * as RpcSerialization from "effect/unstable/rpc/RpcSerialization"
import * as RpcServer from "effect/unstable/rpc/RpcServer"
import { renameSync, writeFileSync } from "node:fs"

const nothing = () => Effect.die("It only starts.")

const handlers = Rpcs.toLayer({
  Hello: nothing,
  StartSession: nothing,
  StartTurn: nothing,
  ReadTurn: () => Stream.die("It only starts."),
  AbortTurn: nothing,
  SubmitToolResult: nothing,
  Approve: nothing,
  SendMessage: nothing,
  Compact: nothing,
  ReadState: nothing,
  StopSession: nothing,
  DestroySession: nothing
})

const listening = Layer.effectDiscard(Effect.gen(function*() {
  const { address } = yield* HttpServer.HttpServer
  const file = process.argv.at(-1)!
  const port = "port" in address ? address.port : undefined
  writeFileSync(`${file}.new`, JSON.stringify({ port, pid: process.pid }))
  renameSync(`${file}.new`, file)
}))

const routes = RpcServer.layer(Rpcs).pipe(
  Layer.provide([handlers, RpcServer.layerProtocolWebsocket({ path: "/" })]),
  Layer.provide(RpcSerialization.layerJson)
)

BunRuntime.runMain(Layer.launch(
  Layer.mergeAll(HttpRouter.serve(routes, { disableLogger: true, disableListenLog: true }), listening).pipe(
    Layer.provide(BunHttpServer.layer({ hostname: "127.0.0.1", port: 0 }))
  )
))
