/** All settings of all variants or of one, by group or by search. */
import { html, useEffect, useRef } from '../../dom.js';
import { ESSENTIALS } from '../../lib/launch/settings.js';
import { ChangedKnobs, KnobGroups, KnobPanels } from './knobs.js';

/** @typedef {import('./knobs.js').KnobProps} KnobProps */

/** Settings that all variants share are elsewhere on the page. */
const SHOWN_ELSEWHERE = ['policy', 'problems', ...ESSENTIALS.map(([path]) => path)];

/**
 * @param {{names: string[], scope: string, sharedKnobs: KnobProps, makeKnobs: (index: number) => KnobProps, open:
 *   string[], find: string, onFind: (find: string) => void, onScope: (scope: string) => void, onOpen: (open: string[])
 *   => void}} props `scope`: the index of the variant with these settings, or '' for the shared settings; `find`: the
 *   searched text
 */
export function SettingsCard({ names, scope, sharedKnobs, makeKnobs, open, find, onFind, onScope, onOpen }) {
  const card = useRef(/** @type {HTMLElement | null} */ (null));
  const lastTyped = useRef('');
  useEffect(() => {
    if (find && find !== lastTyped.current) card.current?.scrollIntoView(); // the user followed a link to the setting
    lastTyped.current = find;
  }, [find]);
  const isShared = names[Number(scope)] === undefined || scope === '';
  const knobs = isShared ? sharedKnobs : makeKnobs(Number(scope));
  const panels = { ...knobs, open, onOpen, search: find.trim() };
  return html`<section class="card" ref=${card} id="launch-settings" aria-labelledby="launch-settings-title">
    <header class="card-head settings-head">
      <h2 id="launch-settings-title"><span class="launch-number">5</span> All settings</h2>
      <label class="settings-scope">
        <span>of</span>
        <span class="select">
          <select aria-label="Settings of" value=${isShared ? '' : scope} onChange=${(event) => onScope(event.target.value)}>
            <option value="" selected=${isShared}>all variants</option>
            ${names.map((name, i) => html`<option key=${i} value=${i} selected=${!isShared && Number(scope) === i}>${name}</option>`)}
          </select>
        </span>
      </label>
      <input
        class="field settings-search"
        type="search"
        aria-label="Search settings"
        placeholder="Search: weight decay, top_p, LoRA …"
        value=${find}
        onInput=${(event) => {
          lastTyped.current = event.target.value;
          onFind(event.target.value);
        }}
      />
    </header>
    ${isShared && html`<${ChangedKnobs} ...${sharedKnobs} open=${find ? [] : open} hidden=${SHOWN_ELSEWHERE} />`}
    <div class="knobs"><${KnobGroups} ...${panels} /></div>
    <${KnobPanels} ...${panels} />
  </section>`;
}
