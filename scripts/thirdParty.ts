/**
 * The licences of what a bundle contains, which go with it.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"

const directoryOf = (path: string): string | undefined => /^.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(path)?.[0]

const licenceOf = (directory: string): string => {
  const file = readdirSync(directory).find((name) => /^(licen[cs]e|copying)/i.test(name))
  if (file === undefined) throw new Error(`${directory} has no licence to go with a bundle`)
  return readFileSync(join(directory, file), "utf8").trim()
}

/** The comments of a source that claim a copyright: what a package took from others, with its conditions. */
const notices = (text: string): ReadonlyArray<string> =>
  [...text.matchAll(/\/\*[\s\S]*?\*\/|(?:^[ \t]*\/\/.*\n)+/gm)]
    .map(([comment]) =>
      comment
        .replace(/^\/\*\*?|\*\/$/g, "")
        .replace(/^[ \t]*(\/\/|\*)? ?/gm, "")
        .trim()
    )
    .filter((comment) => /\bcopyright\b/i.test(comment) || /\bunder (the )?\w+ licen[cs]e\b/i.test(comment))

/**
 * A text with the licence of every package in a bundle, and of what these took from others. `inputs` are the files that
 * it was made from, as `Bun.build` names them.
 */
export const thirdPartyLicences = (inputs: ReadonlyArray<string>): string => {
  const files = new Map<string, Array<string>>()
  for (const path of inputs.map((input) => resolve(input))) {
    const directory = directoryOf(path)
    if (directory !== undefined) files.set(directory, [...files.get(directory) ?? [], path])
  }
  const packages = [...files].map(([directory, sources]) => {
    const { name, version } = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))
    const taken = new Set(sources.sort().flatMap((path) => notices(sourceOf(directory, path))))
    return { title: `${name} ${version}`, texts: [licenceOf(directory), ...taken] }
  })
  packages.sort((one, other) => one.title < other.title ? -1 : 1)
  return ["This program contains:", ...packages.map(({ title }) => `- ${title}`)].join("\n") + "\n" + compiled
    + packages.map(({ texts, title }) => `\n${"=".repeat(80)}\n${title}\n\n${texts.join("\n\n---\n\n")}\n`).join("")
}

const compiled = `
Where it is one file that runs without Bun, that file contains Bun too, which is MIT licensed and lists what it contains
itself, JavaScriptCore under the LGPL among it, at https://bun.sh/docs/project/license.
`

// What compilers leave out of comments stands in the source.
const sourceOf = (directory: string, path: string): string => {
  const source = join(directory, "src", path.slice(`${directory}/dist/`.length).replace(/\.js$/, ".ts"))
  return readFileSync(existsSync(source) ? source : path, "utf8")
}
