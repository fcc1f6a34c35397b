/**
 * How this program is called, for commands that a person is told to type.
 */
import { relative } from "node:path"

const quoted = (argument: string): string =>
  /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`

// It may be gone.
const currentDirectory = (): string => {
  try {
    return process.cwd()
  } catch {
    return "/"
  }
}

// Sources are run by Bun, which may have been run without being on the PATH.
const program = (): ReadonlyArray<string> => {
  const called = process.argv[1] ?? ""
  if (Bun.isStandaloneExecutable || !/\.[jt]s$/.test(called)) return ["gangway"]
  const bun = Bun.which("bun") === null ? process.execPath : "bun"
  const path = relative(currentDirectory(), called)
  return [bun, path.startsWith("..") ? called : path]
}

/** The command line that runs this program with some arguments, for a shell. */
export const commandLine = (args: ReadonlyArray<string>): string => [...program(), ...args].map(quoted).join(" ")
