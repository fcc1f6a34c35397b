/**
 * Hosts without a client: one that leads a turn to its end, over as many bridges as it takes, and one that reads it.
 */
import type { Bridge } from "@gangway/protocol"
import { randomUUID } from "node:crypto"
import { answerTo, tools } from "./Answers.ts"
import type { Observed } from "./Observed.ts"
import type { Random } from "./Random.ts"
import { Disconnected, RawHost, type Reply } from "./RawHost.ts"
import * as W from "./World.ts"

interface Options {
  readonly world: W.World
  readonly observed: Observed
  readonly random: Random
}

export interface LaunchOptions extends Options {
  /** The longest time between a bridge's death and the launch of the next one. */
  readonly patience: number
  readonly idleTimeout?: string
}

export interface DriveOptions extends LaunchOptions {
  readonly prompt: string
}

const key = { session: W.session, turn: W.turn }

const hello = async (host: RawHost) => {
  const reply = await host.call("Hello", { host: { name: "chaos", version: "1" }, protocol: 1 })
  if (reply._tag === "Failure") throw new Error(`Hello: ${JSON.stringify(reply.error)}`)
  return reply.value as { readonly bridge: string; readonly launch: string }
}

/** Connects to the bridge that the listening file names; fails where it doesn't answer as that. */
export const connect = async (world: W.World): Promise<RawHost> => {
  const file = world.listening()
  if (file === undefined) throw new Disconnected("no listening file")
  const host = await RawHost.connect(file.port, W.token)
  const { bridge, launch } = await hello(host)
  if (bridge === W.bridge && launch === file.launch) return host
  host.close()
  throw new Disconnected("another bridge")
}

/** Launches a bridge and connects to it, again where it died meanwhile. */
export const launch = async ({ idleTimeout, patience, random, world }: LaunchOptions): Promise<RawHost> => {
  while (true) {
    await Bun.sleep(random.integer(0, patience))
    const id = randomUUID()
    const child = world.launch(id, {
      ...(idleTimeout === undefined ? {} : { idleTimeout }),
      endInput: random.chance(0.5)
    })
    const hasExited = () => child.exitCode !== null || child.signalCode !== null
    await W.until("a launched bridge's start", () => hasExited() || world.listening()?.launch === id)
    if (hasExited() && child.signalCode !== "SIGKILL") {
      throw new Error(`a bridge exited with ${child.exitCode ?? child.signalCode}`)
    }
    const connected = await ifConnected(connect(world))
    if (connected !== undefined) return connected
    // Killed bridges are launched again, and nothing else is.
    await W.until("a killed bridge's end", hasExited)
  }
}

/** Starts the session, or another one, with the tools that all hosts have. */
export const startSession = (host: RawHost, world: W.World, session: string = W.session): Promise<Reply> =>
  host.call("StartSession", {
    session,
    directory: world.work,
    permissions: "ask",
    settings: "none",
    tools: tools.tools
  })

/** Nothing, where the connection is lost. */
export const ifConnected = async <A>(promise: Promise<A>): Promise<A | undefined> => {
  try {
    return await promise
  } catch (error) {
    if (error instanceof Disconnected) return undefined
    throw error
  }
}

const problem = (what: string, reply: Reply): Error =>
  new Error(`${what}: ${JSON.stringify(reply._tag === "Failure" ? reply.error : reply)}`)

/** Leads the turn to its end. */
export const drive = async (options: DriveOptions): Promise<void> => {
  const { observed, random, world } = options
  const cursor = new Cursor(observed)
  let attempt = 1
  let withPrompt = true
  let connected = await ifConnected(connect(world))
  while (true) {
    const host = connected ?? await launch(options)
    const done = await ifConnected((async () => {
      const started = await startSession(host, world)
      if (started._tag === "Failure") throw problem("StartSession", started)
      while (true) {
        const prompt = withPrompt ? { prompt: [{ type: "text", text: options.prompt }] } : {}
        const reply = await host.call("StartTurn", { ...key, ...prompt, attempt })
        if (reply._tag === "Failure") {
          // The conversation doesn't hold the prompt yet.
          if (reply.error._tag !== "TurnConflict" || reply.error.field !== "prompt" || withPrompt) {
            throw problem("StartTurn", reply)
          }
          withPrompt = true
          continue
        }
        observed.started.push(reply.value)
        if (reply.value.attempt !== attempt) throw problem(`attempt ${attempt}`, reply)
        const end = await read(host, cursor, options)
        if (end.end.type !== "aborted") return true
        if (end.end.reason !== "bridge-died") throw new Error(`the turn ended as ${JSON.stringify(end)}`)
        if (end.attempt < attempt) throw new Error(`attempt ${end.attempt} ended, ${attempt} was started`)
        attempt = end.attempt + 1
        withPrompt = random.chance(0.5)
      }
    })())
    host.close()
    if (done === true) return
    connected = undefined
  }
}

/** Reads on to an end, and answers what is asked. */
export const read = async (
  host: RawHost,
  cursor: Cursor,
  options: Options & { readonly answers?: boolean }
): Promise<Bridge.EndLine> => {
  const { promise, reject, resolve } = Promise.withResolvers<Bridge.EndLine>()
  host.read({ ...key, ...cursor.position() }, (frame, values) => {
    const end = cursor.take(frame, values, (part) => {
      if (options.answers === false) return
      answer(host, part, options).catch((error) => {
        if (!(error instanceof Disconnected)) reject(error)
      })
    })
    if (end !== undefined) resolve(end)
  }).then((reply) => reject(problem("ReadTurn", reply)), reject)
  return promise
}

const answer = async (host: RawHost, part: Bridge.KnownPart, { observed, random }: Options): Promise<void> => {
  const answer = answerTo(part)
  if (answer === undefined) return
  await Bun.sleep(random.integer(0, 30))
  for (let times = random.chance(0.2) ? 2 : 1; times > 0; times--) {
    const reply = await host.call(answer.tag, { ...key, ...answer.payload })
    if (reply._tag === "Success") observed.accepted.push(answer.id)
    else if (reply.error._tag !== "TurnEnded") throw problem(answer.tag, reply)
  }
}

/** Reads the turn to its last end, from wherever it is, and never launches anything. */
export const observe = async (options: Options & { readonly isOver: () => boolean }): Promise<void> => {
  const { observed, random, world } = options
  let cursor = new Cursor(observed)
  while (!options.isOver()) {
    const host = await ifConnected(connect(world))
    if (host === undefined) {
      await Bun.sleep(30)
      continue
    }
    // Reading all of it again is as good as reading on.
    if (random.chance(0.3)) cursor = new Cursor(observed)
    const { promise, reject, resolve } = Promise.withResolvers<Bridge.EndLine | undefined>()
    const cut = random.chance(0.5) ? setTimeout(() => host.close(), random.integer(1, 400)) : undefined
    host.read({ ...key, ...cursor.position() }, (frame, values) => {
      const end = cursor.take(frame, values, () => {})
      if (end !== undefined) resolve(end)
    }).then((reply) => {
      // The turn may not be there yet.
      if (reply._tag === "Failure" && /^(Session|Turn)NotFound$/.test(reply.error._tag) && cursor.next === 1) {
        return resolve(undefined)
      }
      reject(problem("ReadTurn", reply))
    }, reject)
    const end = await ifConnected(promise)
    clearTimeout(cut)
    host.close()
    if (end !== undefined && end.end.type !== "aborted") return
    await Bun.sleep(20)
  }
}

/** Where a reader is. */
export class Cursor {
  next = 1
  private attempt: number | undefined
  private readonly observed: Observed

  constructor(observed: Observed) {
    this.observed = observed
  }

  position() {
    return this.next === 1 ? { from: 1 } : { from: this.next, attempt: this.attempt }
  }

  /** Takes a chunk, in which numbers must go on; gives the end, if it's there. */
  take(frame: string, values: ReadonlyArray<any>, onPart: (part: Bridge.KnownPart) => void) {
    this.observed.frames.push(frame)
    for (const value of values) {
      if ("end" in value) {
        if (value.next !== this.next) throw new Error(`an end before ${value.next} came in the place of ${this.next}`)
        this.observed.ends.push(value)
        return value as Bridge.EndLine
      }
      for (const { n, part } of value.parts) {
        if (n !== this.next) throw new Error(`number ${n} came in the place of ${this.next}`)
        this.next++
        onPart(part)
      }
      this.attempt = value.attempt
      this.observed.highest = Math.max(this.observed.highest, this.next - 1)
    }
    return undefined
  }
}
