/** The quick jump: one field to find runs, experiments, panels of the page, settings, help and pages. */
import { html, useEffect, useId, useMemo, useState } from '../../dom.js';
import { menu, findPage } from '../../app/pages.js';
import { navigate } from '../../app/router.js';
import { panelsOfPage } from '../../app/state.js';
import { get } from '../../data/api.js';
import { useGet, useLoad } from '../../data/resource.js';
import { findBest, sortSections, runQuery } from '../../lib/jump.js';
import { findPaths, findWords } from '../../lib/launch/settings.js';
import { experimentAddress, runAddress } from '../../lib/runs/addresses.js';
import { toOneLine, takeStart } from '../../lib/text/tokens.js';
import { formatAgo, plural } from '../../lib/text/format.js';
import { address, encode, text as textCodec } from '../../lib/url.js';
import { Icon } from '../shared/icons.js';
import { Dialog } from '../shared/overlay.js';
import { useSettled } from '../shared/settled.js';

/** @typedef {import('../../lib/jump.js').Place} Place */
/** @typedef {import('../../lib/jump.js').Section} Section */

const PAUSE_MS = 150;
const LIMIT = 6;
const MAX_CHARACTERS = 200;
const MAX_NAME = 120;

/** @param {{onClose: () => void}} props */
export function Jump({ onClose }) {
  const [typedText, setTypedText] = useState('');
  const [activeKey, setActiveKey] = useState('');
  const [isChosen, setChosen] = useState(false);
  const list = useId();
  const { sections, isLoading } = useSections(typedText);
  const places = sections.flatMap((section) => section.places);
  const active = places.find(({ key }) => key === activeKey) ?? places[0];

  const go = (/** @type {Place} */ place) => {
    onClose();
    if (place.run) place.run();
    else if (place.address) follow(place.address);
  };
  useEffect(() => {
    // Enter was pressed before the results arrived.
    if (!isChosen || isLoading) return;
    setChosen(false);
    if (active) go(active);
  }, [isChosen, isLoading]);
  useEffect(() => {
    document.getElementById(placeId(list, active))?.scrollIntoView({ block: 'nearest' });
  }, [active?.key]);

  const move = (/** @type {number} */ offset) => {
    const index = places.findIndex(({ key }) => key === active?.key);
    if (places.length) setActiveKey(places[(index + offset + places.length) % places.length].key);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'ArrowDown') move(1);
    else if (event.key === 'ArrowUp') move(-1);
    else if (event.key === 'Enter') setChosen(true);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Jump to" onClose=${onClose}>
    <label class="search jump-field">
      <${Icon} name="search" />
      <span class="visually-hidden">Run, experiment, metric, setting or help</span>
      <input
        class="field"
        type="text"
        role="combobox"
        autofocus
        autocomplete="off"
        spellcheck="false"
        maxlength=${MAX_CHARACTERS}
        placeholder="Run, experiment, metric, setting or help"
        aria-expanded="true"
        aria-autocomplete="list"
        aria-controls=${list}
        aria-activedescendant=${active ? placeId(list, active) : undefined}
        value=${typedText}
        onInput=${(/** @type {any} */ event) => {
          setTypedText(event.target.value);
          setActiveKey('');
          setChosen(false);
        }}
        onKeyDown=${press}
      />
    </label>
    <div class="jump-list" id=${list} role="listbox" aria-label="Places" tabindex="-1">
      ${sections.map(
        ({ title, places: inside }) => html`<div key=${title} role="group" aria-label=${title}>
          <div class="menu-title" aria-hidden="true">${title}</div>
          ${inside.map(
            (place) => html`<div
              key=${place.key}
              id=${placeId(list, place)}
              class="jump-place"
              role="option"
              aria-selected=${place.key === active?.key}
              onMouseMove=${() => setActiveKey(place.key)}
              onClick=${() => go(place)}
            >
              <bdi>${takeStart(toOneLine(place.name), MAX_NAME) || 'unnamed'}</bdi>
              ${place.detail && html`<span class="faint">${takeStart(toOneLine(place.detail), MAX_NAME)}</span>`}
            </div>`,
          )}
        </div>`,
      )}
    </div>
    <p class="faint jump-foot" role="status">
      ${places.length || isLoading ? '↑ ↓ choose · Enter opens · Esc closes' : 'Nothing matches.'}
    </p>
  <//>`;
}

/** @param {string} list @param {Place | undefined} place */
const placeId = (list, place) => `${list}-${place?.key.replace(/\s/g, '_')}`;

/** Opens a page, without reloading if both pages belong to the application. @param {string} target */
function follow(target) {
  const [path] = target.split(/[?#]/);
  if (findPage(location.pathname) && findPage(path)) navigate(target);
  else location.assign(target);
}

/**
 * Returns the matches of a text. `isLoading` is true until the service has returned runs and experiments.
 * @param {string} typedText @returns {{sections: Section[], isLoading: boolean}}
 */
function useSections(typedText) {
  const text = typedText.trim();
  const query = useSettled(text, PAUSE_MS);
  const namedItems = useLoad(query, (signal) => loadNamed(query, signal), { subject: 'named' });
  const help = useGet(query ? '/help' : null, { query, limit: LIMIT });
  const schema = useLoad(text ? 'settings' : null, () => loadSettings());
  const panels = panelsOfPage.value;
  const settings = useMemo(
    () => (schema.data && text ? findSettingPlaces(schema.data, text) : []),
    [schema.data, text],
  );
  return {
    isLoading: namedItems.data?.asked !== text && !namedItems.error,
    sections: sortSections(
      [
        { title: 'Metrics of this page', places: text && panels ? findBest(makePanelPlaces(panels), text, LIMIT) : [] },
        { title: text ? 'Runs' : 'Newest runs', places: (namedItems.data?.runs ?? []).map(runPlace) },
        {
          title: text ? 'Experiments' : 'Newest experiments',
          places: (namedItems.data?.experiments ?? []).map(makeExperimentPlace),
        },
        { title: 'Pages', places: findBest(PAGES, text, PAGES.length) },
        { title: 'Launch settings', places: settings },
        { title: 'Help', places: text ? (help.data?.items ?? []).map(makeHelpPlace) : [], isLast: true },
      ],
      text,
    ),
  };
}

/** Loads the runs and experiments that match a text. @param {string} text @param {AbortSignal} signal */
async function loadNamed(text, signal) {
  const [runs, experiments] = await Promise.all([
    get('/runs', { query: runQuery(text) || undefined, limit: LIMIT }, signal),
    get('/experiments', { query: text || undefined, limit: LIMIT }, signal),
  ]);
  return { asked: text, runs: runs.items, experiments: experiments.items };
}

/** @type {Place[]} */
const PAGES = [
  ...menu.map(({ path, label }) => ({ key: `page ${path}`, name: label, address: path })),
  { key: 'page /help', name: 'Help', address: '/help' },
];

/** @param {Api.RunItem} run @returns {Place} */
const runPlace = (run) => ({
  key: `run ${run.id}`,
  name: run.name,
  detail: [run.experiment_name, run.variant, `seed ${run.seed}`, run.verdict ?? run.status].filter(Boolean).join(' · '),
  address: runAddress(run.id),
});

/** @param {Api.ExperimentItem} item @returns {Place} */
const makeExperimentPlace = (item) => ({
  key: `experiment ${item.id}`,
  name: item.name,
  detail: `${plural(item.runs, 'run')} · ${formatAgo(item.created_at)}`,
  address: experimentAddress(item.id),
});

/** @param {Api.HelpMatch} match @returns {Place} */
const makeHelpPlace = ({ address: target, page, title }) => ({
  key: `help ${target}`,
  name: title,
  detail: page === title ? undefined : page,
  address: target,
});

/** @param {import('../../app/state.js').PanelsOfPage} panels @returns {Place[]} */
const makePanelPlaces = ({ metrics, open }) =>
  metrics.map((metric) => ({ key: `metric ${metric}`, name: metric, run: () => open(metric) }));

/** @typedef {Awaited<ReturnType<typeof get<'/config-schema'>>>} Schema */
/** @type {Promise<Schema> | undefined} */
let loadedSchema;

/** Loads the schema of a run's config once. */
function loadSettings() {
  loadedSchema ??= get('/config-schema').catch((error) => {
    loadedSchema = undefined;
    throw error;
  });
  return loadedSchema;
}

/**
 * Returns the settings that match by key, words or description. The launch page keeps the content of its form.
 * @param {Schema} schema @param {string} typedText
 */
function findSettingPlaces({ schema, defaults, groups }, typedText) {
  const places = groups.flatMap(({ title, fields }) =>
    findPaths(schema, defaults, fields, typedText).map((path) => ({
      key: `setting ${path}`,
      name: path,
      detail: [findWords(path), title].filter(Boolean).join(' · '),
      address:
        location.pathname === '/launch'
          ? `/launch${encode(location.search, { find: path }, { find: textCodec() })}`
          : address('/launch', { find: path }),
    })),
  );
  const matches = findBest(places, typedText, LIMIT);
  return [...matches, ...places.filter((place) => !matches.includes(place))].slice(0, LIMIT);
}
