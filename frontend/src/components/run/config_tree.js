/** A config as sections of fields, with a search by path and value. */
import { html, useMemo, useState } from '../../dom.js';
import { flatten, formatField } from '../../lib/runs/config.js';
import { lookup } from '../../lib/lookup.js';
import { TypedSearch } from '../shared/typed_search.js';

/** @typedef {{path: string, text: string, usual: string | undefined}} Row `usual`: the default, if it differs */

/**
 * Returns the fields of a config by the first part of their path.
 * @param {import('../../lib/runs/config.js').Flat} flat @param {import('../../lib/runs/config.js').Flat} defaults
 * @param {string} search @returns {Map<string, Row[]>}
 */
function makeSections(flat, defaults, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  /** @type {Map<string, Row[]>} */
  const sections = new Map();
  for (const [path, value] of Object.entries(flat)) {
    const text = formatField(value);
    const haystack = `${path} ${text}`.toLowerCase();
    if (!words.every((word) => haystack.includes(word))) continue;
    const usual = lookup(defaults, path);
    const row = {
      path,
      text,
      usual: usual === undefined || formatField(usual) === text ? undefined : formatField(usual),
    };
    const section = path.includes('.') ? path.split('.')[0] : 'run';
    sections.set(section, [...(sections.get(section) ?? []), row]);
  }
  return sections;
}

/**
 * @param {{config: object, defaults: object, empty: string}} props `defaults` are shown next to values that differ;
 *   `empty`: the text for a config without fields
 */
export function ConfigTree({ config, defaults, empty }) {
  const [search, setSearch] = useState('');
  const [flat, usual] = useMemo(() => [flatten(config), flatten(defaults)], [config, defaults]);
  const sections = makeSections(flat, usual, search);
  if (!Object.keys(flat).length) return html`<p class="quiet">${empty}</p>`;
  return html`
    <${TypedSearch} value="" onChange=${setSearch} placeholder="Search the config" />
    <div class="card run-config">
      ${[...sections].map(
        ([section, rows]) => html`<details key=${section} open>
          <summary>${section} <span class="faint">${rows.length}</span></summary>
          <table>
            <tbody>
              ${rows.map(
                ({ path, text, usual: value }) => html`<tr key=${path}>
                  <th scope="row"><code>${path}</code></th>
                  <td>
                    <code>${text}</code>
                    ${value !== undefined && html`${' '}<span class="faint">default ${value}</span>`}
                  </td>
                </tr>`,
              )}
            </tbody>
          </table>
        </details>`,
      )}
      ${!sections.size && html`<p class="quiet">No field and no value contains “${search}”.</p>`}
    </div>
  `;
}
