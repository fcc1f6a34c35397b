import { assert, describe, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Entry, pack, unpack } from "../src/copy/Tar.ts"

const bytes = (text: string) => new TextEncoder().encode(text)

const long = `${"ü".repeat(60)}/${"n".repeat(200)}`

const entries: ReadonlyArray<Entry> = [
  { path: "empty", mode: "100644", content: bytes("") },
  { path: "a b/-run", mode: "100755", content: bytes("x".repeat(513)) },
  { path: long, mode: "100644", content: new Uint8Array([0, 255]) },
  { path: "link", mode: "120000", content: bytes(long) }
]

const texts = (entries: Iterable<Entry>) =>
  [...entries].map(({ content, mode, path }) => ({ path, mode, content: Buffer.from(content).toString("latin1") }))
    .sort((one, other) => one.path < other.path ? -1 : 1)

const inDirectory = (body: (directory: string) => void) => {
  const directory = fs.mkdtempSync(join(tmpdir(), "gangway-tar-"))
  try {
    body(directory)
  } finally {
    fs.rmSync(directory, { recursive: true, force: true })
  }
}

describe("Tar", () => {
  it("reads what it has packed, also several one after the other", () => {
    const two = Buffer.concat([pack(entries.slice(0, 2), 1), pack(entries.slice(2), 1)])
    assert.deepStrictEqual(texts(unpack(two).values()), texts(entries))
    assert.throws(() => unpack(two.subarray(0, 700)), "cut off")
  })

  it("packs what tar unpacks", () =>
    inDirectory((directory) => {
      execFileSync("tar", ["-xf", "-", "-C", directory], { input: pack(entries, 1_700_000_000) })
      for (const { content, mode, path } of entries) {
        const file = join(directory, path)
        if (mode === "120000") assert.strictEqual(fs.readlinkSync(file), Buffer.from(content).toString())
        else {
          assert.deepStrictEqual(new Uint8Array(fs.readFileSync(file)), content)
          assert.strictEqual((fs.statSync(file).mode & 0o100) !== 0, mode === "100755", path)
        }
      }
    }))

  for (const format of ["gnu", "pax", "ustar"]) {
    it(`unpacks what tar packs, as ${format}`, () =>
      inDirectory((directory) => {
        const name = format === "ustar" ? `${"d".repeat(120)}/${"n".repeat(90)}` : long
        fs.mkdirSync(join(directory, name, ".."), { recursive: true })
        fs.writeFileSync(join(directory, name), "content")
        fs.linkSync(join(directory, name), join(directory, "same"))
        fs.symlinkSync(format === "ustar" ? "short" : long, join(directory, "link"))
        const archive = execFileSync("tar", ["--format", format, "-cf", "-", "-C", directory, "same", name, "link"])
        assert.deepStrictEqual(
          texts(unpack(archive).values()),
          texts([
            { path: name, mode: "100644", content: bytes("content") },
            { path: "same", mode: "100644", content: bytes("content") },
            { path: "link", mode: "120000", content: bytes(format === "ustar" ? "short" : long) }
          ])
        )
      }))
  }
})
