/**
 * Provides tests with a Docker engine, an image and the bridge program, until the process that asked for them ends:
 * `engine.ts <directory> <pid of that process>`. It writes `ready.json` into the directory, or `failed`.
 *
 * An engine that runs already is used. Otherwise what is missing is installed, by apt, and one is started that shares
 * nothing with any other and leaves the machine's packet filter alone: the containers reach this machine, and no other.
 * No registry is asked for an image.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { setTimeout as delay } from "node:timers/promises"

const [directory, asker] = process.argv.slice(2) as [string, string]
const root = path.resolve(import.meta.dirname, "../..")
const busybox = "/bin/busybox"

const run = (command: ReadonlyArray<string>, options: { readonly input?: Buffer } = {}): Promise<string> =>
  new Promise((resolve, reject) => {
    const child = spawn(command[0]!, command.slice(1), { stdio: ["pipe", "pipe", "pipe"] })
    let out = ""
    let err = ""
    child.stdout.on("data", (data) => (out += data))
    child.stderr.on("data", (data) => (err = (err + data).slice(-2000)))
    child.stdin.on("error", () => {})
    child.stdin.end(options.input)
    child.on("error", reject)
    child.on("close", (code) => code === 0 ? resolve(out) : reject(new Error(`${command.join(" ")}: ${err.trim()}`)))
  })

const succeeds = (...command: ReadonlyArray<string>) => spawnSync(command[0]!, command.slice(1)).status === 0
const isInstalled = (program: string) => succeeds("sh", "-c", `command -v ${program}`)

const install = async (packages: ReadonlyArray<string>) => {
  if (packages.length === 0) return
  // One after the other: apt waits for no other apt.
  const apt = [...asRoot, "flock", path.join(os.tmpdir(), "gangway-apt.lock")]
    .concat("env", "DEBIAN_FRONTEND=noninteractive", "apt-get")
  await run([...apt, "update"])
  await run([...apt, "install", "-y", "--no-install-recommends", ...packages])
}

let dockerd: ChildProcess | undefined
// Addresses that another engine, which has its own bridge, gives nobody.
const bridge = `gangway-${process.pid % 1_000_000}`
const address = `10.${200 + process.pid % 50}.${Math.floor(process.pid / 50) % 256}.1/24`
const asRoot = process.getuid!() === 0 ? [] : ["sudo", "-n"]

const start = async (): Promise<ReadonlyArray<string>> => {
  const client = ["docker", "--host", `unix://${directory}/docker.sock`]
  await run(["ip", "link", "add", bridge, "type", "bridge"])
  await run(["ip", "address", "add", address, "dev", bridge])
  await run(["ip", "link", "set", bridge, "up"])
  const log = fs.openSync(`${directory}/dockerd.log`, "a")
  dockerd = spawn("dockerd", [
    `--host=unix://${directory}/docker.sock`,
    `--data-root=${directory}/data`,
    `--exec-root=${directory}/exec`,
    `--pidfile=${directory}/dockerd.pid`,
    `--containerd-namespace=gangway-test-${process.pid}`,
    `--bridge=${bridge}`,
    "--iptables=false",
    "--ip6tables=false",
    "--ip-forward=false",
    "--ip-masq=false"
  ], { stdio: ["ignore", log, log] })
  let ended: string | undefined
  dockerd.on("error", (error) => (ended = error.message))
  dockerd.on("exit", (code) => (ended = `it exited with ${code}`))
  const deadline = Date.now() + 60_000
  while (!succeeds(...client, "version")) {
    if (ended !== undefined || Date.now() > deadline) {
      throw new Error(
        `dockerd: ${ended ?? "not ready after a minute"}\n${
          fs.readFileSync(`${directory}/dockerd.log`, "utf8").slice(-2000)
        }`
      )
    }
    await delay(100)
  }
  return client
}

// Busybox, a Bash such as agents ask for, and the C library that they and the bridge program need.
const makeImage = async (client: ReadonlyArray<string>, image: string) => {
  const rootfs = `${directory}/rootfs`
  for (const name of ["bin", "tmp", "etc", "proc", "sys", "dev", "root", "srv", "var/tmp"]) {
    fs.mkdirSync(`${rootfs}/${name}`, { recursive: true })
  }
  for (const name of ["tmp", "srv", "var/tmp"]) fs.chmodSync(`${rootfs}/${name}`, 0o1777)
  fs.writeFileSync(`${rootfs}/etc/passwd`, "root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/srv:/bin/sh\n")
  fs.writeFileSync(`${rootfs}/etc/shadow`, "", { mode: 0o600 })
  fs.copyFileSync(busybox, `${rootfs}/bin/busybox`)
  for (const applet of (await run([busybox, "--list"])).split("\n")) {
    if (applet !== "" && applet !== "busybox") fs.symlinkSync("busybox", `${rootfs}/bin/${applet}`)
  }
  fs.copyFileSync("/bin/bash", `${rootfs}/bin/bash`)
  const libraries = new Set<string>()
  for (const program of [process.execPath, "/bin/bash"]) {
    for (const [, library] of (await run(["ldd", program])).matchAll(/(\/lib\S+) \(0x/g)) libraries.add(library!)
  }
  const libc = [...libraries].find((library) => library.endsWith("/libc.so.6"))!
  libraries.add(path.join(path.dirname(libc), "librt.so.1"))
  for (const library of libraries) {
    fs.mkdirSync(path.dirname(rootfs + library), { recursive: true })
    fs.copyFileSync(fs.realpathSync(library), rootfs + library)
  }
  await run([
    "sh",
    "-c",
    `tar -C "$0" --owner=0 --group=0 -c . | "$@"`,
    rootfs,
    ...client,
    "import",
    "-c",
    "ENV PATH=/bin SHELL=/bin/bash",
    "-",
    image
  ])
}

const client = async () => {
  const running = succeeds("docker", "version")
  if (!running && asRoot.length > 0) throw new Error("only root starts one")
  await install([
    ...(running || (isInstalled("dockerd") && isInstalled("docker")) ? [] : ["docker.io"]),
    ...(running || isInstalled("ip") ? [] : ["iproute2"]),
    ...(fs.existsSync(busybox) ? [] : ["busybox-static"])
  ])
  return running ? ["docker"] : await start()
}

const image = `gangway-test:${process.pid}`

const end = async (client: ReadonlyArray<string>) => {
  await run([
    "sh",
    "-c",
    `"$@" ps --all --quiet --filter ancestor=$0 | xargs -r "$@" rm --force --volumes`,
    image,
    ...client
  ])
    .catch(() => {})
  await run([...client, "rmi", "--force", image]).catch(() => {})
  if (dockerd !== undefined && dockerd.exitCode === null) {
    const exited = new Promise((resolve) => dockerd!.once("exit", resolve))
    dockerd.kill("SIGTERM")
    await exited
    await run(["ip", "link", "delete", bridge]).catch(() => {})
    // It leaves what it mounted for containers in the machine's own network.
    for (const [, mounted] of fs.readFileSync("/proc/mounts", "utf8").matchAll(/^\S+ (\S+)/gm)) {
      if (mounted!.startsWith(`${directory}/`)) await run(["umount", mounted!]).catch(() => {})
    }
  }
  fs.rmSync(directory, { recursive: true, force: true })
}

const asked = () => {
  try {
    return process.kill(Number(asker), 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH"
  }
}

let stopped = false
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => (stopped = true))

let engine: ReadonlyArray<string> = ["docker"]
try {
  const built = run([process.execPath, path.join(root, "scripts/build.ts"), "compile", "--outdir", directory])
  engine = await client()
  await Promise.all([built, makeImage(engine, image)])
  fs.writeFileSync(
    `${directory}/ready.part`,
    JSON.stringify({ client: engine, image, bridge: `${directory}/gangway-bridge` })
  )
  fs.renameSync(`${directory}/ready.part`, `${directory}/ready.json`)
} catch (error) {
  fs.writeFileSync(`${directory}/failed`, (error as Error).message)
}
while (!stopped && asked()) await delay(200)
await end(engine)
process.exit(0)
