/**
 * What is to be known of a test's world when the test fails or runs out of time: its files, its processes, and what
 * its model was asked. What hangs once in many runs is seen only where it hung.
 */
import { Effect, Exit, type Scope } from "effect"
import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs"
import type * as ModelServer from "./model/ModelServer.ts"

export interface World {
  /** The directory that holds all its files; its processes are those that name it, or are started by one that does. */
  readonly root: string
  readonly server: ModelServer.Server
}

/**
 * Tells of a world on standard error where the scope ends with a failure. To be called once all else of the world has
 * been made: it's then told before anything is taken down.
 */
export const tell = (world: World): Effect.Effect<void, never, Scope.Scope> =>
  Effect.addFinalizer((exit) =>
    Exit.isSuccess(exit)
      ? Effect.void
      : Effect.flatMap(world.server.requests, (requests) =>
        Effect.sync(() => {
          console.error([
            `=== The world of a failed test, ${new Date().toISOString()}`,
            ...processesOf(world.root),
            ...requests.map(({ body, conversation, path, side }, index) =>
              `--- request ${index + 1}: ${path}${side ? " (errand)" : ""} ` +
              tail(JSON.stringify(conversation ?? body) ?? "", requestLength)
            ),
            ...filesOf(world.root)
          ].join("\n"))
        }))
  )

/** How many characters are told of the end of a file, and of a line, and of a request. */
const fileLength = 20_000
const lineLength = 1000
const requestLength = 2000

const tail = (text: string, length: number) =>
  text.length <= length ? text : `(${text.length - length} more) ${text.slice(-length)}`

/** The ends of a line say most: what it is, and how it ended. */
const shortened = (line: string) =>
  line.length <= lineLength
    ? line
    : `${line.slice(0, lineLength / 2)} (${line.length - lineLength} more) ${line.slice(-lineLength / 2)}`

const attempt = <A>(read: () => A): A | undefined => {
  try {
    return read()
  } catch {
    return undefined
  }
}

const filesOf = (root: string): ReadonlyArray<string> =>
  (attempt(() => readdirSync(root, { recursive: true })) ?? []).flatMap((name) => {
    const file = `${root}/${String(name)}`
    const stat = attempt(() => statSync(file))
    if (stat?.isFile() !== true) return []
    const content = (attempt(() => readFileSync(file, "utf8")) ?? "(can't be read)").replaceAll("\0", "")
    return [
      `--- file ${String(name)}, ${stat.size} bytes, ${stat.mtime.toISOString()}`,
      tail(content.split("\n").map(shortened).join("\n"), fileLength)
    ]
  })

interface Process {
  readonly pid: number
  readonly parent: number
  readonly command: string
  readonly isOf: boolean
}

const processesOf = (root: string): ReadonlyArray<string> => {
  const processes = (attempt(() => readdirSync("/proc")) ?? []).filter((name) => /^\d+$/.test(name)).flatMap((name) => {
    const read = (file: string) => attempt(() => readFileSync(`/proc/${name}/${file}`, "utf8")) ?? ""
    const parent = /^PPid:\s*(\d+)/m.exec(read("status"))?.[1]
    if (parent === undefined) return []
    const command = read("cmdline").replaceAll("\0", " ")
    const isOf = Number(name) !== process.pid &&
      [command, read("environ"), attempt(() => readlinkSync(`/proc/${name}/cwd`)) ?? ""].some((text) =>
        text.includes(root)
      )
    return [{ pid: Number(name), parent: Number(parent), command, isOf } satisfies Process]
  })
  const ours = new Set(processes.flatMap(({ isOf, pid }) => isOf ? [pid] : []))
  for (let before = -1; before < ours.size;) {
    before = ours.size
    for (const { parent, pid } of processes) if (ours.has(parent)) ours.add(pid)
  }
  return processes.filter(({ pid }) => ours.has(pid)).map(({ command, parent, pid }) => {
    const status = attempt(() => readFileSync(`/proc/${pid}/status`, "utf8")) ?? ""
    const threads = (attempt(() => readdirSync(`/proc/${pid}/task`)) ?? []).map((thread) => {
      const read = (file: string) => attempt(() => readFileSync(`/proc/${pid}/task/${thread}/${file}`, "utf8").trim())
      return `    ${thread} ${read("comm") ?? ""} ${read("wchan") ?? ""} ${read("syscall") ?? ""}`
    })
    const of = (name: string) => new RegExp(`^${name}:.*`, "m").exec(status)?.[0].replaceAll(/\s+/g, " ") ?? ""
    const descriptors = (attempt(() => readdirSync(`/proc/${pid}/fd`)) ?? []).map((fd) =>
      `${fd}=${attempt(() => readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? ""}`
    )
    return [
      `--- process ${pid} of ${parent}: ${tail(command, requestLength)}`,
      `    ${["State", "Threads", "VmRSS", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"].map(of).join(", ")}`,
      `    ${descriptors.join(" ")}`,
      ...threads
    ].join("\n")
  })
}
