/**
 * A bundle as a program that is started by its name.
 */

// Where it's started, a stranger's files may be: Bun is told not to take settings, code to run first, or variables from
// there. What comes before a program can't carry several arguments everywhere, so it's a shell's script first, whose one
// line is nothing to JavaScript.
const header = `#!/bin/sh\n":" //# ; exec bun --no-env-file --config=/dev/null "$0" "$@"\n`

/** What Bun made of an entry point, started by whatever `bun` is on the PATH. */
export const runnable = (bundle: string): string => header + bundle.replace(/^#!.*\n/, "")
