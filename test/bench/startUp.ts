/**
 * Starting compiled programs.
 */
import { Bridge } from "@gangway/protocol"
import { readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { launchLine, listening, type World } from "./World.ts"

/** A program that writes a listening file. */
export interface Program {
  readonly file: string
  /** Its arguments, its input, and its listening file, for a place of its own. */
  readonly at: (place: string) => {
    readonly arguments: ReadonlyArray<string>
    readonly input: string
    readonly listening: string
  }
}

/** The bridge program, the bare server, and Effect's RPC server alone. */
export interface Programs {
  readonly bridge: Program
  readonly bare: Program
  readonly stock: Program
}

/** Compiles the bridge program, by the project's own build, and the other two alike. */
export const build = async (world: World): Promise<Programs> => {
  const root = resolve(import.meta.dirname, "../..")
  const outdir = join(world.directory, "compiled")
  const built = Bun.spawnSync([process.execPath, join(root, "scripts/build.ts"), "compile", "--outdir", outdir], {
    stdout: "ignore",
    stderr: "inherit"
  })
  if (!built.success) throw new Error("the bridge program can't be compiled")
  const alike = async (source: string): Promise<Program> => {
    const file = join(outdir, source)
    await Bun.build({
      entrypoints: [join(import.meta.dirname, `${source}.ts`)],
      target: "bun",
      minify: true,
      bytecode: true,
      format: "esm",
      compile: { outfile: file }
    })
    return { file, at: (place) => ({ arguments: [place], input: "", listening: place }) }
  }
  return {
    bridge: {
      file: join(outdir, "gangway-bridge"),
      at: (place) => ({
        arguments: [],
        input: launchLine(place, { agent: "scripted", home: `${place}-home` }),
        listening: Bridge.listeningFile(place)
      })
    },
    bare: await alike("bareServer"),
    stock: await alike("stockServer")
  }
}

/**
 * Has the system forget the pages of a program's file, as it has after a start of the machine: the next start reads what
 * it needs from the disk. Says whether the system can.
 */
export const forget = ({ file }: Program): boolean =>
  process.platform === "linux" &&
  Bun.spawnSync(["dd", `of=${file}`, "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"]).success

/** Starts a program, and waits until it listens; how long that took, and what memory it has then, in bytes. */
export const startUp = async (world: World, program: Program) => {
  const at = program.at(world.path("started"))
  const start = performance.now()
  const child = Bun.spawn([program.file, ...at.arguments], { stdin: "pipe", stdout: "ignore", stderr: "inherit" })
  child.stdin.write(at.input)
  void child.stdin.flush()
  const { pid } = await listening(at.listening)
  const milliseconds = performance.now() - start
  const resident = residentMemory(pid)
  child.kill("SIGKILL")
  await child.exited
  return { milliseconds, resident }
}

// The system's file of it, or its tool where there's no such file.
const residentMemory = (pid: number): number => {
  if (process.platform === "linux") {
    return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024
  }
  return Number(Bun.spawnSync(["ps", "-o", "rss=", "-p", String(pid)]).stdout.toString()) * 1024
}
