// A classic script, run before the first paint: the chosen theme must not flash.
// The one place outside app/state.js that reads this key.
{
  const chosen = localStorage.getItem('grpolab.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
}
