/** Work that is spread over frames: so many milliseconds of it between two frames, the rest after the next one, and none while a view is scrolled fast. */

const SHARE_MS = 4;
const FAST = 1_500; // pixels a second
const SETTLED_MS = 80; // after the last fast step

export class Turns {
  constructor() {
    this.until = 0;
    this.isPlanned = false;
    this.waiting = /** @type {Set<() => void>} */ (new Set());
    this.place = { top: 0, left: 0, at: 0 };
    this.settling = 0;
  }

  /** Note where a view was scrolled to. @param {number} top @param {number} across */
  move(top, across) {
    const at = performance.now();
    const { place } = this;
    const isFast = Math.abs(top - place.top) + Math.abs(across - place.left) > (FAST * (at - place.at)) / 1000;
    this.place = { top, left: across, at };
    if (!isFast && !this.settling) return;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      this.settling = 0;
      if (this.waiting.size && !this.isPlanned) this.plan();
    }, isFast ? SETTLED_MS : 0);
  }

  /** Whether there is time left before the next frame. */
  get hasTime() {
    if (this.settling) return false;
    if (!this.isPlanned) this.plan();
    return performance.now() < this.until;
  }

  /** Call something when there is time again. @param {() => void} run @returns {() => void} no longer */
  wait(run) {
    this.waiting.add(run);
    if (!this.isPlanned && !this.settling) this.plan();
    return () => this.waiting.delete(run);
  }

  /** Begin a share, which ends once the next frame is drawn. */
  plan() {
    this.isPlanned = true;
    this.until = performance.now() + SHARE_MS;
    requestAnimationFrame(() => setTimeout(() => {
      this.isPlanned = false;
      if (!this.waiting.size || this.settling) return;
      this.plan();
      const waiting = [...this.waiting];
      this.waiting.clear();
      for (const run of waiting) run();
    }));
  }
}
