/**
 * The Docker engine that tests use: a running one, or with CI=true or GANGWAY_TEST_DOCKER=start one of their own.
 */
import { Context, Effect, Layer } from "effect"
import { spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import { setTimeout as delay } from "node:timers/promises"

/** What tests of Docker start from. */
export class Docker extends Context.Service<Docker, {
  /** The `docker` program and the engine that it's to ask. */
  readonly client: readonly [string, ...Array<string>]
  /** Busybox, Bash, a C library and two users, `root` and `agent`. */
  readonly image: string
  /** The bridge program, as one file. */
  readonly bridge: string
}>()("test/docker/Docker") {}

const asked = process.env["CI"] === "true" || process.env["GANGWAY_TEST_DOCKER"] === "start"

/** Why there's none. */
export const skipped: string | undefined = await (async () => {
  if (asked) return undefined
  const enable = "GANGWAY_TEST_DOCKER=start bun run test installs and starts what is missing"
  if (spawnSync("docker", ["version"], { timeout: 10_000 }).status !== 0) return `no Docker engine runs here: ${enable}`
  if (process.platform !== "linux" || process.arch !== "x64") return "the image that they use is for x64 Linux"
  if (!fs.existsSync("/bin/busybox")) return `the image that they use takes busybox-static: ${enable}`
  return undefined
})()

/** How long the first file that uses it may wait. */
export const patience = 300_000

/** The variables by which a program of its own asks the same engine. */
export const variables = ({ client }: Docker["Service"]): Readonly<Record<string, string>> => {
  const at = client.indexOf("--host")
  const given = at < 0 ? process.env["DOCKER_HOST"] : client[at + 1]
  return given === undefined ? {} : { DOCKER_HOST: given }
}

// All files of a run share one, which ends after the process that runs them.
const directory = `${tmpdir()}/gangway-test-docker-${process.ppid}`

const read = (file: string) => {
  try {
    return fs.readFileSync(`${directory}/${file}`, "utf8")
  } catch {
    return undefined
  }
}

export const layer: Layer.Layer<Docker> = Layer.effect(
  Docker,
  Effect.promise(async () => {
    try {
      fs.mkdirSync(directory)
      spawn(process.execPath, [`${import.meta.dirname}/engine.ts`, directory, String(process.ppid)], {
        detached: true,
        stdio: "ignore"
      }).unref()
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error
    }
    const deadline = Date.now() + patience
    for (;;) {
      const ready = read("ready.json")
      if (ready !== undefined) return JSON.parse(ready)
      const failed = read("failed")
      if (failed !== undefined) throw new Error(`there is no Docker engine: ${failed}`)
      if (Date.now() > deadline) throw new Error("there is no Docker engine after 5 minutes")
      await delay(100)
    }
  })
)
