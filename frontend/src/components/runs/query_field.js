/** The search field of the list of runs, which accepts a query, completes it and marks its errors. */
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from '../../dom.js';
import { get } from '../../data/api.js';
import { applyCompletion, findCompletion, markPosition } from '../../lib/runs/query.js';
import { Icon } from '../shared/icons.js';
import { lookup } from '../../lib/lookup.js';

/** @typedef {import('../../lib/runs/query.js').Completion} Completion */

/** @type {Completion} */
const NO_COMPLETION = { from: 0, to: 0, options: [] };

const DEBOUNCE_MS = 300;

/**
 * @param {{value: string, onChange: (query: string) => void, input: {current: HTMLInputElement | null},
 *   error: import('../../data/api.js').ApiError | null}} props `error`: the error of the list request, if any
 */
export function QueryField({ value, onChange, input, error }) {
  const [typedQuery, setTypedQuery] = useState(value);
  const [completion, setCompletion] = useState(NO_COMPLETION);
  const [active, setActive] = useState(-1);
  const [fields, loadFields] = useFields();
  const lastQuery = useRef(value);
  const caret = useRef(/** @type {number | null} */ (null));
  const list = useId();

  const submitQuery = (/** @type {string} */ query) => {
    if (query === lastQuery.current) return;
    lastQuery.current = query;
    onChange(query);
  };
  useEffect(() => {
    if (value !== lastQuery.current) {
      lastQuery.current = value;
      setTypedQuery(value);
    }
  }, [value]);
  useEffect(() => {
    const timer = setTimeout(() => submitQuery(typedQuery), DEBOUNCE_MS);
    return () => clearTimeout(timer);
  }, [typedQuery]);
  useLayoutEffect(() => {
    if (caret.current !== null) input.current?.setSelectionRange(caret.current, caret.current);
    caret.current = null;
  }, [typedQuery]);

  const updateCompletion = (/** @type {string} */ text, /** @type {number} */ position) => {
    setCompletion(findCompletion(text, position, fields));
    setActive(-1);
  };
  useEffect(() => {
    // The fields may be loaded after the user has started to type.
    const field = input.current;
    if (fields.length && typedQuery && field === document.activeElement)
      updateCompletion(typedQuery, field?.selectionStart ?? typedQuery.length);
  }, [fields]);
  const close = () => setCompletion(NO_COMPLETION);
  const choose = (/** @type {number} */ index) => {
    const next = applyCompletion(typedQuery, completion, completion.options[index]);
    caret.current = next.caret;
    setTypedQuery(next.text);
    updateCompletion(next.text, next.caret);
    input.current?.focus();
  };
  const { options } = completion;
  const handleKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const position = input.current?.selectionStart ?? typedQuery.length;
    const step = lookup({ ArrowDown: 1, ArrowUp: -1 }, event.key);
    if (step && options.length)
      setActive((old) => (old + step + options.length + (old < 0 && step < 0 ? 1 : 0)) % options.length);
    else if (step === 1) updateCompletion(typedQuery, position);
    else if (event.key === 'Enter' && active >= 0) choose(active);
    else if (event.key === 'Tab' && active >= 0) choose(active);
    else if (event.key === 'Enter') {
      close();
      submitQuery(typedQuery);
    } else if (event.key === 'Escape' && options.length) {
      close();
      event.stopPropagation();
    } else return;
    event.preventDefault();
  };
  const queryError = error?.errors.find(({ path, position }) => path === 'query' && position !== undefined);
  return html`<div class="query-field">
    <label class="search">
      <${Icon} name="search" />
      <span class="visually-hidden">Search runs</span>
      <input
        class="field"
        type="search"
        role="combobox"
        aria-autocomplete="list"
        aria-expanded=${options.length > 0}
        aria-controls=${list}
        aria-activedescendant=${active >= 0 ? `${list}-${active}` : undefined}
        aria-invalid=${Boolean(queryError)}
        autocomplete="off"
        spellcheck=${false}
        ref=${input}
        value=${typedQuery}
        placeholder="Names, or reward/mean > .5 and tag = old (/)"
        title="Words search names; fields take =, !=, <, >, ~ and in, joined by and, or, not"
        onFocus=${loadFields}
        onInput=${(event) => {
          setTypedQuery(event.target.value);
          updateCompletion(event.target.value, event.target.selectionStart);
        }}
        onKeyDown=${handleKeyDown}
        onBlur=${close}
      />
    </label>
    <a class="query-help" href="/help/queries" title="The query language" aria-label="Help on queries">
      ?
    </a>
    <ul class="query-options" id=${list} role="listbox" aria-label="Completions" hidden=${!options.length}>
      ${options.map(
        (option, i) => html`<li
          key=${option.text}
          id=${`${list}-${i}`}
          role="option"
          aria-selected=${i === active}
          onMouseDown=${(event) => {
            event.preventDefault();
            choose(i);
          }}
        >
          <span>${option.text}</span>
          <span class="faint">${option.hint}</span>
        </li>`,
      )}
    </ul>
    ${
      queryError &&
      html`<div class="query-error" role="alert">
        <pre aria-hidden="true">${markPosition(value, queryError.position ?? 0)}</pre>
        ${queryError.message}
      </div>`
    }
  </div>`;
}

/** The fields of queries, loaded when they are first needed. @returns {[Api.QueryField[], () => void]} */
function useFields() {
  const [fields, setFields] = useState(/** @type {Api.QueryField[]} */ ([]));
  const load = () => {
    // The field can search without them, and the list shows the error of the service.
    get('/run-fields')
      .then(({ items }) => setFields(items))
      .catch(() => {});
  };
  return [fields, load];
}
