"""What the page of a diagnosis has beyond the looks of every report."""

# Kept to a contrast of 4.5 to 1 in both schemes, as the rest; a browser test measures it.
STYLE = """
.said { margin: 0 0 .9rem; }
.said .badge { font-size: 1rem; }
.also { font-size: 1.1rem; margin: 1.8rem 0 .5rem; }
.points { max-width: 52rem; margin: 0; padding-left: 1.2rem; }
.points li { margin-bottom: .35rem; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr));
  gap: 1rem; margin: 1.8rem 0 0; }
.number-card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1rem 1.2rem; overflow-wrap: anywhere; }
.number-card h2 { font-size: .95rem; font-weight: 600; color: var(--soft); margin: 0 0 .2rem;
  letter-spacing: 0; }
.number-card .large { font-size: 2.3rem; line-height: 1.2; font-weight: 650; margin: 0 0 .2rem; }
.number-card p:last-child { margin: 0; font-size: .95rem; line-height: 1.45; }
.shares { display: flex; height: 1.7rem; border-radius: 6px; overflow: hidden; margin: .6rem 0; }
.shares span { min-width: 2px; }
.key { list-style: none; margin: 0; padding: 0; font-size: .95rem; line-height: 1.5; }
.key li { display: flex; gap: .6rem; align-items: baseline; }
.key i { flex: none; width: .8rem; height: .8rem; border-radius: 3px;
  border: 1px solid var(--line); }
.key b { margin-left: auto; font-weight: 600; white-space: nowrap; }
.warning { border: 1px solid var(--failed); border-left-width: .5rem; border-radius: 10px;
  background: var(--failed-back); color: var(--failed); padding: 1rem 1.3rem; margin: 1.6rem 0 0;
  overflow-wrap: anywhere; }
.warning.amber { border-color: var(--open); background: var(--open-back); color: var(--open); }
.warning h2 { font-size: 1.15rem; margin: 0 0 .4rem; }
.warning p { margin: 0 0 .5rem; max-width: 52rem; }
.warning p:last-child { margin: 0; }
.warning code, .warning a { background: none; padding: 0; color: inherit; }
.warning code { font-weight: 600; }
main code, header code { overflow-wrap: anywhere; }
h1, .lede, .points, figcaption, dd, caption { overflow-wrap: anywhere; }
.plate.fits img { width: 100%; max-width: 38rem; }
.plate.wide img { width: 100%; max-width: 54rem; }
figcaption { font-size: 1rem; color: var(--ink); }
details { margin: .6rem 0 1.6rem; }
summary { cursor: pointer; color: var(--link); font-size: .95rem; }
summary:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
details .table { margin: .8rem 0; }
.scroll td, .scroll th { overflow-wrap: anywhere; }
.scroll .number { overflow-wrap: normal; }
@media (max-width: 44rem) {
  .plate.fits img { max-width: 100%; }
  .plate.wide img { width: 40rem; max-width: none; }
  .number-card .large { font-size: 2rem; }
}
@media print { details { display: none; } .warning, .number-card { break-inside: avoid; } }
"""
