# Film ratings, as `hyperframes movielens --csv` reads them, of people who have tastes of their own:
#
#   awk -f ratings.awk >ratings.csv
function next_number(below) {
  state = (state * 16807) % 2147483647
  return state % below
}
BEGIN {
  state = 7
  split("Comedy Drama Horror War", genres, " ")
  print "userId,movieId,title,year,genres,rating,timestamp"
  for (i = 0; i < 4000; ++i) {
    user = next_number(150); film = next_number(80)
    liked = (user + film) % 4 < 2
    printf "%d,%d,\"Film %d\",%d,\"%s\",%s,%d\n", user + 1, film + 1, film + 1, 1980 + film % 30,
           genres[film % 4 + 1], (liked ? 4 : 2) + next_number(3) / 2, 1000000 + i
  }
}
