/**
 * What Daytona's shells are told: it takes a command as text for whichever shell the image has.
 */

/** A command as text, in single quotes, which mean the same to every shell. */
export const toText = (words: ReadonlyArray<string>): string =>
  words.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ")

/** A script for `sh`, with its arguments from `$0` on, as text. */
export const scriptText = (script: string, args: ReadonlyArray<string>): string => toText(["sh", "-c", script, ...args])

// What an image's commands complain of is understood in no other language.
const inEnglish = "LC_ALL=C; export LC_ALL"

/**
 * Runs a command: `nonce directory command…`. It prints the first MiB of standard output and ends as the command does,
 * or prints the nonce where the directory isn't there. What is over a MiB is read and dropped, so that the command
 * doesn't end of a closed pipe.
 */
export const runScript = `
if [ -n "$1" ] && ! cd -- "$1" 2>/dev/null; then printf %s "$0"; exit 1; fi
shift
exec 4>&1 </dev/null 2>/dev/null
code=$({ { "$@" 3>&- 4>&-; echo $? >&3; } | { head -c 1048576; cat >/dev/null; } >&4 3>&-; } 3>&1)
exit "\${code:-1}"
`

/** Makes the log for its owner alone, and looks for the working directory: `log its-directory directory`. */
export const prepareScript = `
${inEnglish}
umask 077
mkdir -p -- "$1" && : >>"$0" || exit 1
[ -z "$2" ] || cd -- "$2"
`

/**
 * Starts a program: `log directory command…`. It's in a session of its own where the image has \`setsid\`, for with
 * Daytona's session its shell's process group ends.
 */
export const startScript = `
[ -z "$1" ] || cd -- "$1" || exit 127
shift
if command -v setsid >/dev/null 2>&1; then setsid "$@"; else "$@"; fi >>"$0" 2>&1
exit $?
`

/** Makes the directory of a file, and a private one to upload into, whose path it prints: `directory file`. */
export const receiveScript = `
${inEnglish}
mkdir -p -- "$0" || exit 1
if [ -d "$1" ]; then echo "$1: Is a directory"; exit 1; fi
exec mktemp -d
`

/** Moves what was uploaded to its place: `uploaded mode file its-directory`. */
export const placeScript = `
${inEnglish}
[ -f "$0" ] || { rm -rf -- "$3"; echo "the upload was lost"; exit 1; }
chmod "$1" "$0" && mv -f -- "$0" "$2"
code=$?
rm -rf -- "$3"
exit $code
`

/** The directory that a path's last name is in. */
export const parentOf = (path: string): string => {
  const end = path.lastIndexOf("/")
  return end < 0 ? "." : end === 0 ? "/" : path.slice(0, end)
}
