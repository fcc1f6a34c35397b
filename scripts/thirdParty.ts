/**
 * The licences of what a bundle contains, which go with it.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"

/** What a bundle was made from, as `Bun.build` tells it: paths from `root`. */
export interface Inputs {
  readonly root: string
  readonly paths: Iterable<string>
}

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

/** A text with the licence of every package in a bundle, and of what these took from others. */
export const thirdPartyLicences = ({ paths, root }: Inputs): string => {
  const files = new Map<string, Array<string>>()
  for (const path of paths) {
    const directory = directoryOf(resolve(root, path))
    if (directory === undefined) continue
    files.set(directory, [...files.get(directory) ?? [], resolve(root, path)])
  }
  const packages = [...files].map(([directory, sources]) => {
    const { name, version } = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))
    const taken = new Set(sources.sort().flatMap((path) => notices(sourceOf(directory, path))))
    return { title: `${name} ${version}`, texts: [licenceOf(directory), ...taken] }
  })
  packages.sort((one, other) => one.title < other.title ? -1 : 1)
  return ["This program contains:", ...packages.map(({ title }) => `- ${title}`)].join("\n") + "\n"
    + packages.map(({ texts, title }) => `\n${"=".repeat(80)}\n${title}\n\n${texts.join("\n\n---\n\n")}\n`).join("")
}

// What compilers leave out of comments stands in the source.
const sourceOf = (directory: string, path: string): string => {
  const source = join(directory, "src", path.slice(`${directory}/dist/`.length).replace(/\.js$/, ".ts"))
  return readFileSync(dirname(source).startsWith(directory) && existsSync(source) ? source : path, "utf8")
}
