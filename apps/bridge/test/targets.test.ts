/**
 * The bridge program as one file for each system that a sandbox may be.
 */
import { afterAll, assert, describe, it } from "@effect/vitest"
import * as Executable from "@gangway/sandbox/Executable"
import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const directory = mkdtempSync(join(tmpdir(), "gangway-targets-"))

afterAll(() => rmSync(directory, { recursive: true, force: true }))

// Another system's takes a program of Bun's that has to be fetched first.
const target: Executable.Target = { machine: process.arch === "arm64" ? "arm64" : "x64", libc: "glibc" }
const name = `gangway-bridge-${Executable.toName(target)}`

const build = (place: string) => {
  const outdir = join(directory, place)
  const script = join(import.meta.dirname, "../../../scripts/build.ts")
  execFileSync(process.execPath, [script, "targets", "--target", Executable.toName(target), "--outdir", outdir])
  return { program: readFileSync(join(outdir, name)), sums: readFileSync(join(outdir, "SHA256SUMS"), "utf8") }
}

describe.runIf(process.platform === "linux")("the builds for sandboxes", () => {
  it("are the same bytes each time, whose checksums are told", () => {
    const [one, other] = [build("one"), build("other")]
    assert.isTrue(one.program.equals(other.program))
    assert.strictEqual(one.sums, `${createHash("sha256").update(one.program).digest("hex")}  ${name}\n`)
    assert.strictEqual(other.sums, one.sums)
    assert.match(execFileSync(join(directory, "one", name), ["--version"], { encoding: "utf8" }), /^\d+\.\d+\.\d+\n$/)
  }, 60_000)

  it("are for a target that has a name", () => {
    const script = join(import.meta.dirname, "../../../scripts/build.ts")
    assert.throws(
      () => execFileSync(process.execPath, [script, "targets", "--target", "linux-vax"], { stdio: "pipe" }),
      /no target is named linux-vax: there are linux-x64, linux-x64-musl, linux-arm64, linux-arm64-musl/
    )
  })
})
