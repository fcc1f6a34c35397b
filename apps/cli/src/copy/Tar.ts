/**
 * Archives as every `tar` reads and writes them: plain files and symbolic links, with names of any length.
 */

/** A file of a directory, by its path from there: plain, executable or, where the content is its target, a link. */
export interface Entry {
  readonly path: string
  readonly mode: "100644" | "100755" | "120000"
  readonly content: Uint8Array
}

const block = 512
const padded = (size: number) => Math.ceil(size / block) * block
const encoder = new TextEncoder()
// What isn't UTF-8 would come back as another name.
const decoder = new TextDecoder("utf-8", { fatal: true })

/** Packs files, with one time for all of them, in seconds. */
export const pack = (entries: ReadonlyArray<Entry>, time: number): Uint8Array => {
  const pieces: Array<Uint8Array> = []
  const add = (header: Uint8Array, content: Uint8Array) => {
    pieces.push(header, content, new Uint8Array(padded(content.length) - content.length))
  }
  for (const { content, mode, path } of entries) {
    const isLink = mode === "120000"
    const name = encoder.encode(path)
    const target = isLink ? content : new Uint8Array()
    // A name too long for its field goes before, as a file's content.
    for (const [type, text] of [["K", target], ["L", name]] as const) {
      if (text.length <= 100) continue
      const ended = new Uint8Array(text.length + 1)
      ended.set(text)
      add(header({ name: encoder.encode("././@LongLink"), size: ended.length, type, mode: 0o644, time }), ended)
    }
    add(
      header({
        name,
        target,
        size: isLink ? 0 : content.length,
        type: isLink ? "2" : "0",
        mode: mode === "100755" ? 0o755 : 0o644,
        time
      }),
      isLink ? new Uint8Array() : content
    )
  }
  pieces.push(new Uint8Array(2 * block))
  return Buffer.concat(pieces)
}

const header = (options: {
  readonly name: Uint8Array
  readonly target?: Uint8Array
  readonly size: number
  readonly type: string
  readonly mode: number
  readonly time: number
}): Uint8Array => {
  const bytes = new Uint8Array(block)
  const text = (at: number, value: string) => bytes.set(encoder.encode(value), at)
  const octal = (at: number, length: number, value: number) =>
    text(at, `${value.toString(8).padStart(length - 1, "0")}\0`)
  bytes.set(options.name.subarray(0, 100), 0)
  octal(100, 8, options.mode)
  octal(108, 8, 0)
  octal(116, 8, 0)
  octal(124, 12, options.size)
  octal(136, 12, options.time)
  text(148, "        ")
  text(156, options.type)
  if (options.target !== undefined) bytes.set(options.target.subarray(0, 100), 157)
  text(257, "ustar  \0")
  octal(148, 7, bytes.reduce((sum, byte) => sum + byte, 0))
  return bytes
}

/**
 * Unpacks plain files and symbolic links, by their paths as they stand there, also from several archives one after the
 * other. It throws where that isn't an archive, or a name isn't UTF-8.
 */
export const unpack = (bytes: Uint8Array): Map<string, Entry> => {
  const entries = new Map<string, Entry>()
  let long: { path?: string; target?: Uint8Array; size?: number } = {}
  if (bytes.length % block !== 0) throw new Error("the archive is cut off")
  for (let at = 0; at + block <= bytes.length;) {
    if (bytes[at] === 0) {
      at += block
      continue
    }
    const start = at
    const field = (from: number, length: number) => {
      const found = bytes.subarray(start + from, start + from + length)
      const end = found.indexOf(0)
      return end < 0 ? found : found.subarray(0, end)
    }
    const number = (from: number, length: number) =>
      Number.parseInt(decoder.decode(field(from, length)).trim() || "0", 8)
    const size = long.size ?? number(124, 12)
    if (!Number.isSafeInteger(size) || at + block + size > bytes.length) throw new Error("the archive is cut off")
    const content = bytes.subarray(at + block, at + block + size)
    const type = String.fromCharCode(bytes[at + 156]!)
    const isUstar = decoder.decode(field(257, 6)) === "ustar"
    const prefix = isUstar ? decoder.decode(field(345, 155)) : ""
    at += block + padded(size)
    const withoutEnd = () => content.subarray(0, content.at(-1) === 0 ? content.length - 1 : content.length)
    if (type === "L") long = { ...long, path: decoder.decode(withoutEnd()) }
    else if (type === "K") long = { ...long, target: withoutEnd() }
    else if (type === "x") long = { ...long, ...fromPax(content) }
    else if (type !== "g") {
      const name = () => decoder.decode(field(0, 100))
      const { path = prefix === "" ? name() : `${prefix}/${name()}`, target = field(157, 100) } = long
      long = {}
      const mode = number(100, 8)
      if (type === "2") entries.set(path, { path, mode: "120000", content: target })
      else if (type === "1") {
        // The same file under another name.
        const same = entries.get(decoder.decode(target))
        if (same !== undefined) entries.set(path, { ...same, path })
      } else if (type === "0" || type === "\0") {
        entries.set(path, { path, mode: (mode & 0o100) === 0 ? "100644" : "100755", content })
      }
    }
  }
  return entries
}

const fromPax = (content: Uint8Array) => {
  const found: { path?: string; target?: Uint8Array; size?: number } = {}
  for (let at = 0; at < content.length;) {
    const space = content.indexOf(0x20, at)
    const length = Number(decoder.decode(content.subarray(at, space)))
    if (space < 0 || !(length > 0)) break
    const record = content.subarray(space + 1, at + length - 1)
    const equals = record.indexOf(0x3d)
    const [key, value] = [decoder.decode(record.subarray(0, equals)), record.subarray(equals + 1)]
    if (key === "path") found.path = decoder.decode(value)
    else if (key === "linkpath") found.target = value
    else if (key === "size") found.size = Number(decoder.decode(value))
    at += length
  }
  return found
}
