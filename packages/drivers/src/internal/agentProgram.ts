/**
 * The program of an agent that's to be found in the sandbox: whether it's there, and in a version that fits.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"

export interface Wanted {
  readonly driver: string
  /** The agent's name for people. */
  readonly title: string
  /** The npm package, at the version that the tests run. */
  readonly install: string
  /** The versions that the driver takes. */
  readonly versions: { readonly fits: (version: string) => boolean; readonly words: string }
  /** The version in what the program prints. */
  readonly read: (printed: string) => string | undefined
  /** How long the program may take to say what it is. */
  readonly patience: `${number} seconds`
}

/** The patches `from` to `to` of a minor version, such as `2.1`. */
export const patches = (
  minor: string,
  { from, to }: { readonly from: number; readonly to: number }
): Wanted["versions"] => ({
  fits: (version) => {
    const [, of, patch] = /^(\d+\.\d+)\.(\d+)$/.exec(version) ?? []
    return of === minor && Number(patch) >= from && Number(patch) <= to
  },
  words: `${minor}.${from} to ${minor}.${to}`
})

/** The command that installs an agent's npm package. */
export const installCommand = ({ install }: Pick<Wanted, "install">): string => `npm install --global ${install}`

/** The version that the program says when it's run with `--version`, by the given command; it's one that fits. */
export const versionOf = Effect.fnUntraced(function*(
  wanted: Wanted,
  command: ChildProcess.StandardCommand
): Effect.fn.Return<string, Bridge.DriverError, ChildProcessSpawner> {
  const { driver, patience, read, title, versions } = wanted
  const spawner = yield* ChildProcessSpawner
  const program = command.command
  const failed = (kind: Bridge.DriverError["kind"], problem: string) =>
    new Bridge.DriverError({ driver, kind, problem })
  const howToInstall = `install it with '${installCommand(wanted)}', or name the program in the option 'command'`
  const printed = yield* print(spawner, command).pipe(
    Effect.timeoutOrElse({
      duration: patience,
      orElse: () => Effect.fail(failed("start", `'${program} --version' didn't answer within ${patience}`))
    }),
    Effect.catchTag("PlatformError", (error) =>
      Effect.fail(
        error.reason._tag === "NotFound"
          ? failed("not-installed", `there is no ${title} at '${program}': ${howToInstall}`)
          : failed("start", `'${program} --version' can't be run: ${error.message}`)
      ))
  )
  const version = read(printed)
  if (version === undefined || !versions.fits(version)) {
    const found = `${title} ${version ?? "of an unknown version"}`
    return yield* failed("wrong-version", `${found} isn't one of ${versions.words}: ${howToInstall}`)
  }
  return version
})

/** The characters of what a program prints that are read. */
const maxPrinted = 64 * 1024

/** What a program prints, its beginning at least. One that's asked to end and doesn't is killed. */
const print = (spawner: ChildProcessSpawner["Service"], command: ChildProcess.StandardCommand) => {
  const { args, options } = command
  let length = 0
  return spawner.streamString(
    ChildProcess.make(command.command, args, { ...options, forceKillAfter: "1 second" })
  ).pipe(
    Stream.takeUntil((text) => (length += text.length) > maxPrinted),
    Stream.mkString
  )
}
