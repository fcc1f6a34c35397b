/**
 * How words look: coloured for a terminal, or as they are.
 */

export interface Style {
  readonly bold: (text: string) => string
  readonly dim: (text: string) => string
  readonly red: (text: string) => string
  readonly green: (text: string) => string
  readonly yellow: (text: string) => string
  readonly cyan: (text: string) => string
}

/** What a rendering depends on beside the part. */
export interface Look {
  readonly style: Style
  /** The width that lines are cut to which aren't prose. */
  readonly columns: number
  /** Whether lines of prose are broken there where something stands before them. */
  readonly wraps?: boolean | undefined
  /** The directory that paths are told from. */
  readonly directory?: string | undefined
}

/** The look where paths are told from a directory. Its width is asked for each time: a terminal may change it. */
export const lookFrom = (look: Look, directory: string | undefined): Look => ({
  style: look.style,
  wraps: look.wraps,
  directory,
  get columns() {
    return look.columns
  }
})

const same = (text: string) => text

export const plain: Style = { bold: same, dim: same, red: same, green: same, yellow: same, cyan: same }

// Each line is dressed for itself, so that a line that's cut or prefixed later keeps its neighbours as they are.
const sgr = (open: number, close: number) => (text: string) =>
  text.replace(/[^\n]+/g, (line) => `\x1b[${open}m${line}\x1b[${close}m`)

export const coloured: Style = {
  bold: sgr(1, 22),
  dim: sgr(2, 22),
  red: sgr(31, 39),
  green: sgr(32, 39),
  yellow: sgr(33, 39),
  cyan: sgr(36, 39)
}
