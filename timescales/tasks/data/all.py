"""List all data sets."""

from timescales.tasks.data import cifar, glove, imdb, mnist, released, text

TEXTS = (text.PTB, text.WIKITEXT2, text.WIKITEXT103, text.TEXT8)
ALL = (mnist.CORPUS, cifar.CORPUS, imdb.CORPUS, glove.CORPUS, *TEXTS, released.CORPUS)
CORPORA = {corpus.name: corpus for corpus in ALL}
