/** Saves a comparison as a self-contained file: the dialog that chooses its contents, and the report. */
import { html, useEffect, useRef, useState } from '../../dom.js';
import { say, sayError, theme as shade } from '../../app/state.js';
import { ApiError, get } from '../../data/api.js';
import { download } from '../../app/actions.js';
import { cursor } from '../../charts/cursor.js';
import { renderPicture } from '../../charts/draw.js';
import { makeChartTheme } from '../../charts/theme.js';
import { endMeaning, positionText, readLines, makeTable } from '../../lib/reading.js';
import { reportHtml, listSizes } from '../../lib/report.js';
import { formatField, groupDifferences } from '../../lib/runs/config.js';
import { findGroup } from '../../lib/runs/groups.js';
import { makeMatrixParams, nameRows, toPlainTable, planText } from '../../lib/runs/matrix.js';
import { formatBytes, formatTime, formatValue, plural } from '../../lib/text/format.js';
import { Dialog, DialogButtons } from '../shared/overlay.js';
import { Select } from '../shared/marks.js';
import { describeChart } from '../curves/files.js';
import { loadEnds, loadPanel } from '../curves/loaded.js';

/** @typedef {import('../../lib/runs/groups.js').Group} Group */
/** @typedef {import('../curves/panel.js').PanelView} PanelView */
/**
 * @typedef {{title: string, groups: Group[], runs: string[], metrics: string[], view: PanelView, baseline: string,
 *   looks: import('../curves/lines.js').Looks, names: Map<string, string>,
 *   matrix: {columns: string[] | null, planned: number | null}}} Comparison `runs`: ids of the drawn runs;
 *   `baseline`: name of the group to compare with
 * @typedef {{title: string, note: string, step: string, prompts: number, order: 'first' | 'low' | 'high'}} ReportOptions
 */

const MAX_METRICS = 60;
const MAX_BYTES = 3e6;
/** Size budget for curves, in bytes. The remaining size is for tables and rollouts. */
const CURVE_BYTES = 2e6;
const BYTES_PER_POINT = 14;
const POINTS = { max: 500, min: 30 };
const MAX_ENTRIES = 12;
const MAX_TEXT = 4000;
const MAX_GROUPS = 8;

/** Returns the maximum number of points per curve. @param {Comparison} comparison */
function choosePoints({ metrics, runs, groups, view }) {
  const outlines = (view.groupBy ? groups.length * (view.band === 'none' ? 1 : 3) : runs.length) * metrics.length;
  const fittingPoints = Math.floor(CURVE_BYTES / BYTES_PER_POINT / Math.max(1, outlines));
  return Math.max(POINTS.min, Math.min(POINTS.max, fittingPoints));
}

/** Returns one chart with its values. @param {Comparison} comparison @param {string} metric @param {number} points */
async function drawChart({ view: { seeds, ...pageView }, ...comparison }, metric, points) {
  const page = { ...comparison, view: pageView };
  const [panel, ends] = await Promise.all([loadPanel(metric, page, points), loadEnds(metric, page)]);
  const { view, shown, lines } = panel;
  const figure = describeChart({ ...panel, ends, link: '', mostEntries: MAX_ENTRIES });
  const cursorNow = cursor.peek();
  const isPinned = cursorNow?.isPinned === true;
  const reading = readLines(isPinned ? lines : ends, isPinned ? cursorNow.x : Infinity, view.baseline || null);
  const values = makeTable(reading, { metric, unit: shown.unit, xKind: view.x, smoothing: view.smoothing });
  return { title: metric, picture: await renderPicture(figure), values };
}

/** Statuses with which the service rejects a matrix that is too large or whose URL is too long. */
const REFUSED = [414, 422];

/**
 * Returns the matrix of the page or, if the service rejects it, the reason.
 * @param {Comparison} comparison @returns {Promise<import('../../lib/report.js').Section>}
 */
async function loadMatrix({ groups, baseline, matrix: view }) {
  const title = 'Matrix';
  const base = findGroup(baseline, groups) ?? groups[0];
  /** @type {Api.Matrix} */
  let matrix;
  try {
    matrix = await get('/matrix', makeMatrixParams(groups, view, base));
  } catch (error) {
    if (!(error instanceof ApiError && REFUSED.includes(error.status))) throw error;
    return { title, note: `The service refused it: ${error.detail || error.title}.` };
  }
  return {
    title,
    note: [`Differences from ${baseline}.`, planText(matrix)].concat(matrix.notes).join(' '),
    table: toPlainTable(nameRows(groups, matrix), matrix),
  };
}

/** @param {Comparison} comparison */
function makeDifferences({ groups }) {
  const rows = groupDifferences(
    groups.map(({ name, runs }) => ({ name, configs: runs.map(({ config }) => config ?? {}) })),
  );
  return {
    title: 'Config differences',
    note: `${plural(rows.length, 'field')}, ignoring the seed`,
    table: {
      head: ['field', ...groups.map(({ name }) => name)],
      rows: rows.map(({ path, cells }) => [path, ...cells.map((values) => values.map(formatField).join(' | '))]),
    },
  };
}

/**
 * Returns prompts of the first seed of each variant, with all completions.
 * @param {Comparison} comparison @param {ReportOptions} options
 */
async function loadRollouts({ groups }, { step, prompts, order }) {
  if (!prompts) return [];
  const requests = groups.slice(0, MAX_GROUPS).map(async ({ name, runs: [run] }) => {
    const { items: steps } = await get('/rollouts/steps', { run: run.id });
    const storedSteps = [...new Set(steps.map((item) => item.step))].sort((a, b) => a - b);
    const latestStep = step.trim() === '' ? Infinity : Number(step);
    const shownStep = storedSteps.filter((storedStep) => storedStep <= latestStep).at(-1) ?? storedSteps[0];
    if (shownStep === undefined) return [];
    const { items } = await get('/rollouts', { run: run.id, step: shownStep, limit: 200 });
    const mean = (/** @type {Api.GroupItem} */ group) => group.reward_mean ?? 0;
    const sortedGroups =
      order === 'first' ? items : [...items].sort((a, b) => (order === 'low' ? mean(a) - mean(b) : mean(b) - mean(a)));
    return sortedGroups.slice(0, prompts).map((group) => makeRollout(group, `${name}, seed ${run.seed}`));
  });
  return (await Promise.all(requests)).flat();
}

const truncateText = (/** @type {string} */ text) =>
  text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)} … (${text.length - MAX_TEXT} more characters)` : text;

/** @param {Api.GroupItem} group @param {string} runName */
const makeRollout = (group, runName) => ({
  title: `${runName}, step ${group.step} (${group.kind}): mean reward ${formatValue(group.reward_mean)}`,
  prompt: truncateText(group.prompt),
  answer: truncateText(group.answer || '–'),
  completions: group.completions.map(({ text, reward, advantage, tokens, finish_reason: end, flags }) => ({
    facts: [`reward ${formatValue(reward)}`, `advantage ${formatValue(advantage)}`, `${tokens} tokens`, end, ...flags]
      .filter(Boolean)
      .join(' · '),
    text: truncateText(text),
  })),
});

/**
 * Returns phrases about the contents that the file omits.
 * @param {Comparison} comparison @param {boolean} values
 * @param {boolean} rollouts @param {number} prompts
 */
const describeLeftOut = ({ metrics, groups }, values, rollouts, prompts) => [
  ...(metrics.length > MAX_METRICS ? [`the first ${MAX_METRICS} of ${metrics.length} metrics`] : []),
  ...(values ? [] : [`without tables of values, to stay below ${formatBytes(MAX_BYTES)}`]),
  ...(rollouts ? [] : [`without rollouts, to stay below ${formatBytes(MAX_BYTES)}`]),
  ...(rollouts && prompts && groups.length > MAX_GROUPS
    ? [`rollouts of the first ${MAX_GROUPS} of ${groups.length} variants`]
    : []),
];

/**
 * Returns the file. Curves get fewer points, keeping their peaks, until it is small enough. Then values and rollouts
 * are omitted.
 * @param {Comparison} comparison @param {ReportOptions} options @param {(done: number) => boolean} isWanted
 * @returns {Promise<string | null>} null if it is no longer wanted
 */
async function makeReport(comparison, options, isWanted) {
  const { metrics, runs, groups, view } = comparison;
  const rollouts = await loadRollouts(comparison, options);
  const theme = makeChartTheme(shade.peek());
  const cursorNow = cursor.peek();
  const cursorText = cursorNow?.isPinned
    ? positionText(view.x, cursorNow.x)
    : `at the end, ${endMeaning('')}, of eval/ metrics ${endMeaning('eval/')}`;
  /** @type {Awaited<ReturnType<typeof drawChart>>[]} */
  let charts = [];
  let drawnPoints = 0;
  let text = '';
  for (const { points, values, rollouts: withRollouts } of listSizes(choosePoints(comparison), POINTS.min)) {
    if (points !== drawnPoints) charts = [];
    drawnPoints = points;
    for (const metric of metrics.slice(charts.length, MAX_METRICS)) {
      if (!isWanted(charts.length)) return null;
      charts.push(await drawChart(comparison, metric, points));
    }
    text = reportHtml({
      title: options.title || comparison.title,
      note: options.note,
      link: location.href,
      created: formatTime(Date.now()),
      facts: [
        plural(runs.length, 'run'),
        plural(groups.length, 'variant'),
        `values: ${cursorText}`,
        view.smoothing ? `smoothed ${view.smoothing}` : 'unsmoothed',
        `at most ${points} points a curve, peaks kept`,
        ...describeLeftOut(comparison, values, withRollouts, options.prompts),
      ],
      charts: values ? charts : charts.map(({ title, picture }) => ({ title, picture })),
      sections: [await loadMatrix(comparison), makeDifferences(comparison)],
      rollouts: withRollouts ? rollouts : [],
      colours: { background: theme.background, ink: theme.ink, quiet: theme.label, line: theme.grid },
    });
    if (new Blob([text]).size <= MAX_BYTES) break;
  }
  return text;
}

const ORDERS = [
  { value: 'first', label: 'first prompts' },
  { value: 'low', label: 'lowest reward' },
  { value: 'high', label: 'highest reward' },
];

/**
 * The dialog that chooses the contents of the report and saves the report.
 * @param {Comparison & {onClose: () => void}} props
 */
export function ReportDialog({ onClose, ...comparison }) {
  const [options, setOptions] = useState(
    /** @type {ReportOptions} */ ({ title: comparison.title, note: '', step: '', prompts: 2, order: 'first' }),
  );
  const [doneCount, setDoneCount] = useState(/** @type {number | null} */ (null));
  const isOpen = useRef(true);
  useEffect(
    () => () => {
      isOpen.current = false;
    },
    [],
  );
  const changeOptions = (/** @type {Partial<ReportOptions>} */ changes) => setOptions({ ...options, ...changes });
  const handleInput = (/** @type {keyof ReportOptions} */ name) => (/** @type {any} */ event) =>
    changeOptions({ [name]: event.target.value });
  const save = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    setDoneCount(0);
    try {
      const text = await makeReport(comparison, options, (count) => {
        if (isOpen.current) setDoneCount(count);
        return isOpen.current;
      });
      if (text === null) return;
      download(text, `${options.title || 'report'}.html`, 'text/html');
      say(`Report saved, ${formatBytes(new Blob([text]).size)}`);
      onClose();
    } catch (error) {
      sayError(error);
      setDoneCount(null);
    }
  };
  const count = Math.min(comparison.metrics.length, MAX_METRICS);
  return html`<${Dialog} title="Report" onClose=${onClose}>
    <form class="report-form" onSubmit=${save}>
      <p class="quiet">
        One HTML file with the charts of this page, their values, the tables and some rollouts. It opens without a
        network and contains no script.
      </p>
      <label>
        <span>title</span>
        <input class="field" maxlength="200" value=${options.title} onInput=${handleInput('title')} />
      </label>
      <label>
        <span>note</span>
        <textarea class="field" rows="3" maxlength="5000" value=${options.note} onInput=${handleInput('note')}></textarea>
      </label>
      <div class="toolbar">
        <${Select}
          label="rollouts of each variant"
          value=${String(options.prompts)}
          options=${['0', '1', '2', '4', '8'].map((value) => ({ value, label: value === '0' ? 'none' : value }))}
          onChange=${(/** @type {string} */ value) => changeOptions({ prompts: Number(value) })}
        />
        <${Select} label="which" value=${options.order} options=${ORDERS} onChange=${(order) => changeOptions({ order })} />
        <label class="select">
          <span>at step</span>
          <input
            class="field"
            type="number"
            min="0"
            placeholder="last"
            value=${options.step}
            onInput=${handleInput('step')}
          />
        </label>
      </div>
      <${DialogButtons} onClose=${onClose} disabled=${doneCount !== null}>
        ${doneCount === null ? 'Save report' : `Drawing ${Math.min(doneCount + 1, count)} of ${count}`}
      <//>
    </form>
  <//>`;
}
