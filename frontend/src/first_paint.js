// a classic script that runs before the first paint, so that no other theme flashes
{
  const chosen = localStorage.getItem('grpolab.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
}
