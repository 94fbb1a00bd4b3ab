"""The style sheet of the HTML report: light and dark by the reader's system, nothing loaded.

Both themes keep at least 4.5 to 1 contrast for text (WCAG 2.2, success criterion 1.4.3).
"""

CSS = """
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --ink: #1c1e21; --quiet: #5d646d; --line: #dfe2e6;
  --error: #b3261e; --error-soft: #fbe9e7; --warning: #8a5300; --warning-soft: #fdf1dc;
  --info: #0b5c8a; --info-soft: #e3f1f9; --good: #1d6b3a; --good-soft: #e4f4ea;
  --s0: #3b6fb6; --s1: #c2762b; --s2: #3f8f5f; --s3: #8a5fb0; --s4: #7a7f87;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15171a; --card: #1d2024; --ink: #e6e8eb; --quiet: #a0a8b2; --line: #33383f;
    --error: #ff8a80; --error-soft: #3c1f1d; --warning: #ffc069; --warning-soft: #3a2b12;
    --info: #7cc4f0; --info-soft: #15303f; --good: #7fd6a0; --good-soft: #173323;
    --s0: #6f9fe0; --s1: #e0a05c; --s2: #6fc091; --s3: #b592d8; --s4: #a0a6ae;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1160px; padding: 32px 24px 64px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 40px 0 12px; }
h3 { font-size: 16px; margin: 0; }
h4 { font-size: 14px; margin: 16px 0 4px; }
p { margin: 6px 0; }
a { color: var(--info); }
code, .mono { font: 13px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.quiet { color: var(--quiet); }
.verdict { font-size: 17px; margin: 16px 0; }
.chip {
  display: inline-block; padding: 1px 9px; border-radius: 999px; font-size: 13px;
  font-weight: 600; white-space: nowrap; margin-right: 6px;
}
.chip.error { color: var(--error); background: var(--error-soft); }
.chip.warning { color: var(--warning); background: var(--warning-soft); }
.chip.info { color: var(--info); background: var(--info-soft); }
.chip.good { color: var(--good); background: var(--good-soft); }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 16px 18px; margin: 12px 0;
}
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 5px 18px 5px 0; vertical-align: top; }
th { color: var(--quiet); font-weight: 500; font-size: 13px; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
table.codes { width: 100%; }
table.codes tr + tr td { border-top: 1px solid var(--line); }
.facts { display: flex; flex-wrap: wrap; gap: 8px 32px; margin: 12px 0 0; }
.facts div { min-width: 110px; }
.facts dt, .facts .key { color: var(--quiet); font-size: 13px; }
.check > header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 10px; }
.check > header .quiet { font-size: 13px; }
.example { border-top: 1px solid var(--line); margin-top: 12px; padding-top: 12px; }
.example p { overflow-wrap: anywhere; }
.strip { display: flex; flex-wrap: wrap; gap: 12px; margin: 10px 0 4px; }
figure { margin: 0; width: 160px; }
figure .frame {
  width: 160px; height: 120px; display: flex; align-items: center; justify-content: center;
  background: var(--page); border: 1px solid var(--line); border-radius: 6px; overflow: hidden;
}
figure img { max-width: 158px; max-height: 118px; object-fit: contain; }
figure img.tiny { image-rendering: pixelated; width: 96px; height: auto; }
figure .frame.none {
  color: var(--quiet); font-size: 12px; line-height: 1.35; padding: 8px; text-align: center;
  overflow-wrap: anywhere; border-style: dashed;
}
figcaption code { font-size: 11px; }
figcaption { font-size: 12px; line-height: 1.35; margin-top: 4px; overflow-wrap: anywhere; }
figcaption .note { color: var(--warning); }
.more { align-self: center; color: var(--quiet); }
details { margin-top: 8px; }
summary { cursor: pointer; color: var(--quiet); font-size: 13px; }
details.page > div { border-left: 3px solid var(--line); padding: 2px 0 2px 16px; margin-top: 8px; }
pre { background: var(--page); padding: 10px 12px; border-radius: 6px; overflow-x: auto; }
svg.bars { display: block; font: 12px system-ui, sans-serif; fill: var(--ink); }
svg.bars .quiet, svg.bars .count { fill: var(--quiet); }
svg.bars .zero { fill: var(--error); font-weight: 600; }
.split0 { fill: var(--s0); } .split1 { fill: var(--s1); } .split2 { fill: var(--s2); }
.split3 { fill: var(--s3); } .split4 { fill: var(--s4); }
@media print { details { display: none; } body { max-width: none; } }
"""
