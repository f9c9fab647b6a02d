/** Work that is spread over frames: so many milliseconds of it between two frames, and the rest after the next one. */

const SHARE_MS = 4;

export class Turns {
  constructor() {
    this.until = 0;
    this.isPlanned = false;
    this.waiting = /** @type {Set<() => void>} */ (new Set());
  }

  /** Whether there is time left before the next frame. */
  get hasTime() {
    if (!this.isPlanned) this.plan();
    return performance.now() < this.until;
  }

  /** Call something when there is time again. @param {() => void} run @returns {() => void} no longer */
  wait(run) {
    this.waiting.add(run);
    if (!this.isPlanned) this.plan();
    return () => this.waiting.delete(run);
  }

  /** Begin a share, which ends once the next frame is drawn. */
  plan() {
    this.isPlanned = true;
    this.until = performance.now() + SHARE_MS;
    requestAnimationFrame(() => setTimeout(() => {
      this.isPlanned = false;
      if (!this.waiting.size) return;
      this.plan();
      const waiting = [...this.waiting];
      this.waiting.clear();
      for (const run of waiting) run();
    }));
  }
}
