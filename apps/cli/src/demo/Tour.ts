/**
 * The demo: one turn that loses its host's connection and its bridge, and not a part.
 */
import type * as HostTools from "@gangway/client/HostTools"
import * as Launcher from "@gangway/client/Launcher"
import * as TokenStore from "@gangway/client/TokenStore"
import type { TurnPart } from "@gangway/client/Turn"
import { WebSocketConstructor } from "@gangway/client/WebSocketConstructor"
import { Scripted, ScriptedAgent } from "@gangway/drivers"
import { Bridge } from "@gangway/protocol"
import { Sandbox } from "@gangway/sandbox/Sandbox"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import * as BridgeProgram from "../BridgeProgram.ts"
import { host } from "../Connect.ts"
import { Screen } from "../Screen.ts"
import * as Count from "./Count.ts"
import * as Report from "./Report.ts"
import * as DemoSandbox from "./Sandbox.ts"
import { check, lookup, script } from "./Script.ts"

const bridge = Bridge.BridgeId.make("demo")
const session = Bridge.SessionId.make("demo")
const turnId = Bridge.TurnId.make("tour")

// So many deltas of the second text are read before the connection is cut.
const cutAfter = 5

/** Runs it, and answers whether each part was read exactly once. As JSON only what was counted is printed. */
export const tour = Effect.fnUntraced(function*(json: boolean) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const screen = yield* Screen
  const { look } = screen
  const { style } = look
  const write = (text: string) => json ? Effect.void : screen.write(text)

  const root = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-demo-" }))
  const [stateDirectory, directory, home] = ["state", "project", "agent"].map((name) => path.join(root, name)) as [
    string,
    string,
    string
  ]
  yield* fs.makeDirectory(directory)
  yield* fs.writeFileString(path.join(directory, "check.sh"), check)

  const say = (text: string) => write(`${style.bold("▸")} ${text}\n`)
  yield* write(`${style.bold("One turn of a scripted agent, in a local sandbox: no credentials, no network.")}\n\n`)

  const sandbox = yield* DemoSandbox.make(stateDirectory)
  const sockets = DemoSandbox.makeSockets()
  const launcher = yield* Launcher.make({ command: yield* BridgeProgram.find(Option.none()), cwd: root }).pipe(
    Effect.provideService(Sandbox, sandbox),
    Effect.provide(TokenStore.layerMemory)
  )

  let lookups = 0
  const tools: HostTools.HostTools = {
    tools: [lookup],
    handle: () =>
      Effect.sync(() => {
        lookups++
        return { result: "Issue 7: the importer cuts files in the middle of a character.", isFailure: false }
      })
  }

  const read: Array<TurnPart> = []
  const lookAt = { ...look, directory }
  let run: Report.Run | undefined
  const tell = (text: string) => {
    const open = Report.flush(run, lookAt)
    run = undefined
    return Effect.andThen(write(open), say(text))
  }

  const follow = Effect.gen(function*() {
    const client = yield* launcher.connect({
      bridge,
      stateDirectory,
      host,
      agentOptions: { agent: "scripted", home },
      idleTimeout: "30 seconds"
    })
    const first = yield* DemoSandbox.bridgeProcess(stateDirectory)
    yield* say(`The host launches a bridge, process ${first}, and starts a turn.`)
    const started = yield* client.startSession({
      session,
      directory,
      tools,
      permissions: "ask",
      onApproval: () => Effect.succeed({ decision: "allow" })
    })
    const turn = yield* started.startTurn({ turn: turnId, prompt: `Fix issue 7. ${Scripted.toPrompt(script)}` })

    // How many connections there were when the last one was cut.
    let cutAt: number | undefined
    let isBack = false
    let isKilled = false
    const beforePart = Effect.fnUntraced(function*({ n, part }: TurnPart) {
      if (cutAt !== undefined && !isBack && sockets.count() > cutAt) {
        isBack = true
        yield* tell(`It has connected again, and reads on from part ${n}.`)
      }
      if (Bridge.isKnown(part) && part.type === "turn-continued") {
        yield* tell(
          `Bridge ${yield* DemoSandbox.bridgeProcess(
            stateDirectory
          )} has taken over. The step that was cut begins anew, ` +
            `so parts ${part.keep + 1} to ${n - 1} are void.`
        )
      }
    })
    const afterPart = Effect.fnUntraced(function*({ n, part }: TurnPart) {
      if (!Bridge.isKnown(part)) return
      if (cutAt === undefined && part.type === "text-delta" && deltasOfSecondText(read) === cutAfter) {
        cutAt = sockets.count()
        yield* tell(`The host's connection is cut after part ${n}. The agent works on, and the bridge writes it down.`)
        sockets.cut()
      }
      if (!isKilled && part.type === "tool-approval-response") {
        isKilled = true
        yield* hasStarted(path.join(directory, "starts"))
        const pid = yield* DemoSandbox.killBridge(stateDirectory)
        yield* fs.writeFileString(path.join(directory, "go"), "")
        yield* tell(`The check is running, and the bridge, process ${pid}, is killed with SIGKILL.`)
        yield* say("The host launches another one and continues the turn from the steps that were finished.")
      }
    })

    yield* Stream.runForEach(turn.parts(), (part) =>
      Effect.gen(function*() {
        read.push(part)
        yield* beforePart(part)
        const [next, text] = Report.report(run, part, lookAt)
        run = next
        yield* write(text)
        yield* afterPart(part)
      }))
    return yield* turn.end
  })
  const end = yield* Effect.provideService(follow, WebSocketConstructor, sockets.constructor)

  const file = Count.partsOfFile(
    yield* fs.readFileString(path.join(stateDirectory, "sessions", session, "turns", `${turnId}.ndjson`))
  )
  const journal = yield* readJournal(home)
  const { doubled, lost } = Count.total([Count.byFile(read, file), Count.byJournal(read, journal)])
  const starts = (yield* fs.readFileString(path.join(directory, "starts"))).trim().split("\n").length
  const attempts = 1 + read.filter(({ part }) => part.type === "turn-continued").length
  yield* say(`The turn has ${end.type}, in ${attempts} attempts and over ${sockets.count()} connections.`)
  yield* say(`The host's tool ran ${times(lookups)}: a call that was finished isn't repeated.`)
  yield* say(`The check was started ${times(starts)}: nobody knows what came of the call that was cut.`)
  yield* say("Compared with the turn's file and with the agent's own journal:")
  const dress = lost + doubled === 0 && end.type === "finished" ? style.green : style.red
  yield* write(`\n${dress(style.bold(`${read.length} parts read, ${lost} lost, ${doubled} doubled`))}\n`)
  const counted = { end: end.type, attempts, connections: sockets.count(), parts: read.length, lost, doubled }
  if (json) yield* screen.write(`${JSON.stringify(counted)}\n`)
  return lost === 0 && doubled === 0 && end.type === "finished"
}, Effect.scoped)

const readJournal = Effect.fnUntraced(function*(home: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const names = yield* fs.readDirectory(path.join(home, "journal"))
  const journals = yield* Effect.forEach(
    names,
    (name) => ScriptedAgent.readJournal({ home, conversation: name.replace(/\.ndjson$/, "") })
  )
  return journals.flat()
})

// The file is there before its line is.
const hasStarted = (file: string) =>
  FileSystem.FileSystem.use((fs) => Effect.orElseSucceed(fs.readFileString(file), () => "")).pipe(
    Effect.repeat({ until: (text) => text.endsWith("\n"), schedule: Schedule.spaced("10 millis") })
  )

const deltasOfSecondText = (read: ReadonlyArray<TurnPart>): number => {
  const known = read.map(({ part }) => part).filter(Bridge.isKnown)
  const [, second] = known.filter((part) => part.type === "text-start")
  return known.filter((part) => part.type === "text-delta" && part.id === second?.id).length
}

const times = (count: number): string => count === 1 ? "once" : count === 2 ? "twice" : `${count} times`
