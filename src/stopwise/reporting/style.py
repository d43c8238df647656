"""What an HTML report looks like: on a wide screen, on a phone, in the dark, on paper."""

# Text and badges keep a contrast of 4.5 to 1 or more in both schemes; a browser test measures it.
STYLE = """
:root {
  --paper: #fbfaf7; --card: #ffffff; --ink: #1d2327; --soft: #59636b; --line: #dedad1;
  --link: #0b5a8a; --tint: #f1efe8; --code: #efece4;
  --held: #0f5b38; --held-back: #dcf1e4; --failed: #8f1d2c; --failed-back: #fbe2e3;
  --open: #684a00; --open-back: #fbeec6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15181b; --card: #1c2024; --ink: #e4e7e9; --soft: #a3adb4; --line: #343a40;
    --link: #86c5f0; --tint: #22272c; --code: #2a3036;
    --held: #9be3bb; --held-back: #12382a; --failed: #ffb3b8; --failed-back: #4a1a22;
    --open: #f5d67b; --open-back: #41330b;
  }
}
* { box-sizing: border-box; }
html { color-scheme: light dark; scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 1.0625rem/1.6 "Source Sans 3", "Segoe UI", system-ui, -apple-system, Roboto,
    "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, sans-serif;
}
a { color: var(--link); text-decoration-thickness: 1px; text-underline-offset: .18em; }
a:focus-visible, [tabindex]:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
h1, h2, h3 { line-height: 1.25; text-wrap: balance; font-weight: 650; }
h1 { font-size: clamp(1.7rem, 4.5vw, 2.5rem); margin: 0 0 .8rem; letter-spacing: -.015em; }
h2 { font-size: 1.55rem; margin: 0 0 .8rem; letter-spacing: -.01em; }
h3 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p { margin: 0 0 1rem; text-wrap: pretty; }
code { font: .9em/1.4 ui-monospace, "Cascadia Mono", Menlo, "DejaVu Sans Mono",
  "Liberation Mono", monospace; background: var(--code); padding: .1em .3em; border-radius: 4px; }
pre { background: var(--code); padding: .9rem 1.1rem; border-radius: 8px; white-space: pre-wrap; }
pre code { background: none; padding: 0; }
.skip { position: absolute; left: -100vw; }
.skip:focus { left: 1rem; top: 1rem; background: var(--card); padding: .5rem 1rem; z-index: 1; }

header { max-width: 76rem; margin: 0 auto; padding: 3.5rem 1.5rem 1.5rem; }
.lede { max-width: 46rem; font-size: 1.15rem; }
.scale { color: var(--soft); margin: 0; max-width: 46rem; }
.scale strong { color: var(--ink); font-weight: 600; margin-right: .4em; }
.page { max-width: 76rem; margin: 0 auto; padding: 0 1.5rem 5rem; }
main { min-width: 0; }
main > section { padding-top: 2.6rem; margin-top: 2.6rem; border-top: 1px solid var(--line); }
main > section:first-child { border-top: 0; padding-top: 1rem; margin-top: 0; }
main > section > p, .exhibit > p, .choice > p, .claim p { max-width: 46rem; }
.where { color: var(--soft); font-size: .95rem; margin: 0 0 .3rem; }

nav { font-size: .95rem; line-height: 1.4; }
nav h2 { font-size: 1rem; margin: 0 0 .6rem; letter-spacing: 0; }
nav ol { list-style: none; margin: 0; padding: 0; }
nav li { margin: 0 0 .5rem; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
@media (min-width: 66rem) {
  .page { display: grid; grid-template-columns: 14.5rem minmax(0, 1fr); gap: 3.5rem; }
  nav { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow-y: auto;
    padding: 1.4rem 0 1rem; }
}
@media (max-width: 65.99rem) {
  nav { background: var(--tint); border-radius: 10px; padding: 1rem 1.2rem .6rem; margin: 1rem 0; }
}

.badge { display: inline-block; white-space: nowrap; font-size: .875rem; line-height: 1.3;
  font-weight: 650; padding: .2em .7em; border-radius: 99px; border: 1px solid currentColor; }
.held { color: var(--held); background: var(--held-back); }
.failed { color: var(--failed); background: var(--failed-back); }
.open { color: var(--open); background: var(--open-back); border-style: dashed; }
.tally { list-style: none; display: flex; flex-wrap: wrap; gap: .8rem; padding: 0;
  margin: 0 0 1.6rem; }
.tally li { display: flex; align-items: center; gap: .7rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; padding: .55rem 1.1rem; }
.count { font-size: 1.7rem; line-height: 1.2; font-weight: 650; }

table { border-collapse: collapse; font-size: .97rem; line-height: 1.45; }
th, td { text-align: left; padding: .5rem .9rem; border-bottom: 1px solid var(--line);
  vertical-align: top; font-weight: 400; }
thead th { font-weight: 650; border-bottom: 2px solid var(--line); vertical-align: bottom; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
[title] { cursor: help; }
.glance { width: 100%; }
.glance .group th { font-weight: 650; padding-top: 1.3rem; }
.glance .group a { color: inherit; text-decoration: none; }
.glance .group a:hover { text-decoration: underline; }
.glance .judged a { color: inherit; text-decoration-color: var(--line); }
.glance .judged a:hover { color: var(--link); text-decoration-color: currentColor; }
.glance td { white-space: nowrap; }
@media (max-width: 44rem) {
  .glance, .glance tbody { display: block; }
  .glance thead { position: absolute; left: -100vw; }
  .glance tr { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; padding: .8rem 0;
    border-bottom: 1px solid var(--line); }
  .glance .group { padding: 1.4rem 0 .5rem; }
  .glance th, .glance td, .glance .group th { border: 0; padding: 0; }
  .glance th { flex: 1 0 100%; }
  .glance td[data-setting]::before { content: attr(data-setting); display: block;
    color: var(--soft); font-size: .85rem; margin-bottom: .15rem; }
}

figure { margin: 1.6rem 0; }
.plate { background: #ffffff; border: 1px solid var(--line); border-radius: 10px;
  padding: .8rem; overflow-x: auto; }
.plate img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption, .note { color: var(--soft); font-size: .92rem; line-height: 1.5; margin: .6rem 0 0;
  max-width: 46rem; }
.table { margin: 1.8rem 0; }
.note + .note { margin-top: .2rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 10px;
  background: var(--card); }
.scroll table { min-width: 100%; }
.scroll caption { text-align: left; font-weight: 650; padding: .8rem .9rem .3rem; }
.scroll tbody tr:last-child > * { border-bottom: 0; }
.scroll tbody th, .scroll td:not(.number) { min-width: 7rem; }

.claim { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.1rem 1.3rem .4rem; margin: 0 0 1rem; }
.claim:target { border-color: var(--link); box-shadow: 0 0 0 2px var(--link); }
.says { font-weight: 600; margin: 0 0 .2rem; }
.criterion { font-size: .97rem; margin: 0 0 .2rem; }
.finding { display: grid; grid-template-columns: 9.5rem minmax(0, 1fr); gap: .3rem 1.2rem;
  border-top: 1px solid var(--line); padding: .8rem 0 .7rem; margin-top: .7rem; }
.finding + .finding { margin-top: 0; }
.verdict { margin: 0; display: flex; flex-direction: column; align-items: flex-start; gap: .3rem; }
.setting { color: var(--soft); font-size: .9rem; padding-left: .2rem; }
.measured p { margin: 0 0 .4rem; }
.why { color: var(--soft); }
.why strong { color: var(--ink); font-weight: 600; }
@media (max-width: 44rem) {
  header { padding: 2rem 1.1rem 1rem; }
  .page { padding: 0 1.1rem 3rem; }
  .finding { grid-template-columns: minmax(0, 1fr); }
  .verdict { flex-direction: row; align-items: center; gap: .6rem; }
  .plate { padding: .3rem; }
  .plate img { max-width: none; width: 40rem; } /* letters stay legible; the plate scrolls */
}

.choice { margin: 0 0 1.6rem; }
.choice h3 { margin: 1.6rem 0 .3rem; }
.choice p { margin-bottom: .5rem; }
.choice p:not(.chosen) { color: var(--soft); }
dl { margin: 0 0 1.5rem; }
dl div { display: grid; grid-template-columns: 9rem minmax(0, 1fr); gap: .2rem 1.2rem;
  padding: .6rem 0; border-bottom: 1px solid var(--line); }
dl div:last-child { border-bottom: 0; }
dt { font-weight: 650; }
dd { margin: 0; max-width: 46rem; }
dd p:last-child { margin: 0; }
@media (max-width: 44rem) { dl div { grid-template-columns: minmax(0, 1fr); } }

@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print {
  :root {
    --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --link: #000;
    --tint: #fff; --code: #eee;
    --held: #0f5b38; --held-back: #fff; --failed: #8f1d2c; --failed-back: #fff;
    --open: #684a00; --open-back: #fff;
  }
  body { font-size: 10.5pt; }
  .page { display: block; max-width: none; padding: 0; }
  header { max-width: none; padding: 0 0 1rem; }
  nav, .skip { display: none; }
  .scroll, .plate { overflow: visible; border: 0; }
  figure, .claim, .choice, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
"""
