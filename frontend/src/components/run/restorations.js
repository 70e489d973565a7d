/** The parts that a resumed or forked run restored from a checkpoint. */
import { html } from '../../dom.js';
import { Visible } from '../rollouts/text.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {Api.Manifest} Manifest */

/** @type {Record<string, string>} */
const WORDS = {
  policy: 'weights',
  random: 'random state',
  progress: 'data position and clocks',
  history: 'rewards from earlier visits to each prompt',
  baseline: 'moving reward average',
  kl: 'KL controller',
  entropy: 'entropy controller',
  pool: 'pending groups',
  behaviour: 'older sampler weights',
};

const joinNames = (/** @type {string[]} */ parts) => parts.map((name) => lookup(WORDS, name) ?? name).join(', ');

/** Returns the manifest of an event, if it has one. @param {Api.RunEvent} event */
export const readManifest = (event) => event.data?.restored;

/** @param {{manifest: Manifest}} props */
export function Restoration({ manifest: { checkpoint, run, parts, fresh, refused, versions } }) {
  const rows = [
    [
      'checkpoint',
      html`
        <code>${checkpoint}</code>
        ${
          run &&
          html`
            ${' '}
            of <a href=${`/run/${run}`}>the parent</a>
          `
        }
        , verified against its SHA-256 checksums
      `,
    ],
    ['restored', joinNames(parts)],
    ['started fresh', fresh.length ? joinNames(fresh) : 'nothing'],
    ...refused.map((refusal) => [
      'refused',
      html`
        <code>${refusal.checkpoint}</code> <${Visible} text=${refusal.reason} />
      `,
    ]),
    ...Object.entries(versions).map(([name, [savedVersion, currentVersion]]) => [
      name,
      `was ${savedVersion || 'unknown'}, now ${currentVersion}: results may differ in the last digits`,
    ]),
  ];
  return html`<dl class="restored">
    ${rows.map(
      ([name, value], i) => html`<div key=${i}>
        <dt>${name}</dt>
        <dd>${value}</dd>
      </div>`,
    )}
  </dl>`;
}

/** Every resume and fork of a run, newest first. @param {{events: Api.RunEvent[]}} props */
export function Restorations({ events }) {
  const restorations = events.filter(readManifest);
  if (!restorations.length) return null;
  return html`
    <h3>${restorations.length > 1 ? `Restored from checkpoints ${restorations.length} times` : 'Restored from a checkpoint'}</h3>
    ${restorations.map(
      (event, i) => html`<details class="more" key=${event.id} open=${i === 0}>
        <summary>
          attempt ${event.attempt}: ${event.message}
        </summary>
        <${Restoration} manifest=${readManifest(event)} />
      </details>`,
    )}
  `;
}
